"""The producer: records in, futures out.

producer, async_producer                      what users call
accumulator, producer_columns, producer_batch   records become batches
buffer_memory                                 how much is held, and who waits for room
partition_queue, sender, produce_request      batches go to their leaders, in order, once
deliveries, producer_end, producer_metrics    their outcomes
"""
