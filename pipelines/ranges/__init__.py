"""Reading what a task is given: records [start, end) of partitions, as columns.

fetch_options     how brokers are asked
partition_range   PartitionRange, ReadLimits, DataLoss
reading_client    the clients of a process
range_reader      the records of some ranges, fetched ahead of the caller
"""
