"""Reading what a task is given: records [start, end) of partitions, as columns.

read_arguments    arguments that all of them have in common
fetch_options     how brokers are asked
partition_range   PartitionRange, ReadLimits, DataLoss
topic_offsets     offsets, times and edges as they are given -> ranges
reading_client    the clients of a process
range_reader      the records of some ranges, fetched ahead of the caller
shared_positions  all that is committed in a topic where several producers keep their positions
local_segments    records from the segment files of a broker on this machine
topic_columns     decoded records -> tables with the columns of ray.data.read_kafka
value_decoder     values -> text, JSON or Arrow columns
schema_values     the same of Avro and Protobuf
json_values       the same of JSON
json_schema       JSON Schema -> the Arrow schema of such values
registry_values   values that begin with ids of a schema registry
"""
