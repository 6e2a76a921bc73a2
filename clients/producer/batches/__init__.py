"""Encoding of records to batches, queues of batches, and their outcomes.

producer_batch, producer_columns   one batch; many records at once, as columns
accumulator                        batches to be filled
partition_queue, partition_queues  batches to be sent: of a partition in order, of all in turn
batch_outcomes                     what becomes of a batch, and who is told
buffer_memory                      limit of buffered bytes, and waiting for room
deliveries, producer_metrics       outcomes for users; figures
record_content                     keys, values and headers as users give them
"""
