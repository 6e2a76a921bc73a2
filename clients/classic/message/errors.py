"""What the interfaces of 0.7 raise besides the errors of a broker, which are in protocol/errors.

    0.7                            here
    OffsetOutOfRangeException      OffsetOutOfRange, a broker's error
    InvalidMessageException        CorruptMessage, also when a client finds the wrong CRC
    InvalidPartitionException      UnknownTopicOrPartition of a broker, ValueError of a partitioner
    InvalidMessageSizeException    InvalidMessageSize
    MessageSizeTooLargeException   MessageTooLarge

Not here: settings that are refused, which are InvalidConfig as everywhere.
"""

from __future__ import annotations

from ....protocol.error_code import ErrorCode
from ....protocol.errors import KafkaError


class InvalidMessageSize(KafkaError):
    """The next messages are larger than what was fetched. The text says how large they are."""

    code = ErrorCode.INVALID_FETCH_SIZE


class ConsumerTimeoutException(Exception):
    """No message came within `consumer.timeout.ms`. The iterator may be asked again."""


class QueueFull(Exception):
    """The queue of an asynchronous producer has had no room within `queue.enqueueTimeout.ms`."""


class QueueClosed(Exception):
    """A message was sent by a producer that is closed."""
