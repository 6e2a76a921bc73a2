"""Encoding of records to batches, queues of batches, and their outcomes.

producer_batch, producer_columns   one batch; many records at once, as columns
accumulator, partition_queue       batches to be filled; batches to be sent, in order
buffer_memory                      limit of buffered bytes, and waiting for room
deliveries, producer_metrics       outcomes for users; figures
record_content                     keys, values and headers as users give them
"""
