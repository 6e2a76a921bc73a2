"""Floor 0: bytes <-> values. Messages, headers, record batches, columns, errors. Pure."""
