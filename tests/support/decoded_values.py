"""Records with these values, as a fetch brings them: flights-3 from offset 0 on."""

import numpy as np
import pyarrow as pa

from bradbury.protocol.columns.columns import DecodedBatches, decode_batches, encode_batch


def decoded_values(*values: bytes | None) -> DecodedBatches:
    batch = encode_batch(
        pa.nulls(len(values), pa.binary()),
        pa.array(values, pa.binary()),
        np.arange(len(values), dtype=np.int64),
        None,
    )
    return decode_batches(bytes(batch), topic="flights", partition=3, fetch_offset=0)
