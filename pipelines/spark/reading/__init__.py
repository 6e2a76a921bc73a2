"""Reading with Spark: batch queries, micro-batches, and their start and end offsets.

batch_query     what each task of a batch query reads, and its rows
stream_reader   micro-batches: where a stream starts, how far each goes
offset_reader   the driver's lookups of partitions and offsets
offsets         offsets of a query: as JSON, under limits, as ranges (pure)
group_commits   commits of a stream's offsets to a group
"""
