"""Readers of the ranges of a task: records [start, end) of partitions, as columns.

read_arguments    arguments that all reads have in common
fetch_options     settings of fetch requests
partition_range   PartitionRange, ReadLimits, DataLoss
topic_offsets     given offsets, times and edges -> ranges
reading_client    the clients of a process
range_reader      reader of the records of some ranges, fetched ahead
shared_positions  committed records of a topic in which several producers keep positions
local_segments    records from the segment files of a broker on this machine
topic_columns     decoded records -> tables with the columns of ray.data.read_kafka
value_decoder     values -> text, JSON or Arrow columns
schema_values     Avro and Protobuf values -> Arrow columns
schema_file       schema of values, from a file: fields of JSON, or an Avro schema
json_values       JSON values -> Arrow columns
json_schema       JSON Schema -> the Arrow schema of such values
registry_values   values that begin with ids of a schema registry
"""
