"""Exceptions of the 0.7 interfaces besides errors of a broker, which are in protocol/errors.

    0.7                            here
    OffsetOutOfRangeException      OffsetOutOfRange, a broker's error
    InvalidMessageException        CorruptMessage, also if a client finds a wrong CRC
    InvalidPartitionException      UnknownTopicOrPartition of a broker, ValueError of a partitioner
    InvalidMessageSizeException    InvalidMessageSize
    MessageSizeTooLargeException   MessageTooLarge

Not here: InvalidConfig, which is raised for invalid settings as everywhere.
"""

from __future__ import annotations

from ....protocol.error_code import ErrorCode
from ....protocol.errors import KafkaError


class InvalidMessageSize(KafkaError):
    """The next messages are larger than the fetch size. The error message has their size."""

    code = ErrorCode.INVALID_FETCH_SIZE


class ConsumerTimeoutException(Exception):
    """No message arrived within `consumer.timeout.ms`. The iterator can be used again."""


class QueueFull(Exception):
    """The queue of an asynchronous producer had no room within `queue.enqueueTimeout.ms`."""


class QueueClosed(Exception):
    """A message was sent by a producer that is closed."""
