"""Reading with Spark: a batch query, micro-batches, the offsets that each begins and ends with.

batch_query     what each task of a batch query reads, and its rows
stream_reader   micro-batches: where a stream starts, how far each goes
offset_reader   the driver's questions to the cluster: partitions, their ends
offsets         offsets of a query: as JSON, under limits, as ranges (pure)
group_commits   what a stream has read, as committed offsets of a group
"""
