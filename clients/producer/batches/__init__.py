"""Records become batches, which wait for their turn; what became of them.

producer_batch, producer_columns   one batch; many records at once, as columns
accumulator, partition_queue       batches to be filled; batches to be sent, in order
buffer_memory                      how much is held, and who waits for room
deliveries, producer_metrics       outcomes for users; figures
"""
