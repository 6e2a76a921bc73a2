"""Record batches <-> columns: decoding of fetched records to Arrow, encoding of Arrow for a
produce.

    decode_batches       the records field of a fetch response -> DecodedBatches
    encode_batches       columns -> batches, cut by size and count
    encode_by_partition  columns and a partition for each row -> batches of each partition
    partition_rows       keys -> partitions, as every Kafka client places them

Invariants:
    bytes from a peer decode or raise KafkaError: never another exception, never a read out of
    bounds, never more than `decompress_limit` bytes out of compressed batches;
    decoded columns own their memory, so the buffer may be reused (except with value_views);
    work is per batch here and per record only in columns_compiled (numba) or columns_plain, which
    is used until the kernels are loaded, while the process has handled few records.

Clients import this module only; the parts are columns_decode, columns_encode and columns_loops.
Not here: single records (records); on which thread `warm_up` runs (clients).
"""

from .columns_arrow import HEADER_TYPE, HEADERS_TYPE, TIMESTAMP_TYPE
from .columns_decode import AbortedProducers, DecodedBatches, decode_batches
from .columns_encode import (
    NO_PRODUCER,
    EncodedBatch,
    ProducerSequence,
    columns_of,
    encode_batch,
    encode_batches,
    encode_by_partition,
    partition_rows,
)
from .columns_loops import kernels_ready, warm_up

__all__ = [
    "HEADERS_TYPE",
    "HEADER_TYPE",
    "NO_PRODUCER",
    "TIMESTAMP_TYPE",
    "AbortedProducers",
    "DecodedBatches",
    "EncodedBatch",
    "ProducerSequence",
    "columns_of",
    "decode_batches",
    "encode_batch",
    "encode_batches",
    "encode_by_partition",
    "kernels_ready",
    "partition_rows",
    "warm_up",
]
