"""Reading with Spark: a batch query, micro-batches, the offsets that each begins and ends with."""
