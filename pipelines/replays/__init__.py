"""Replays of tables into topics, each row exactly once: positions are committed with the records.

replay_table            `bradbury.replay`: rows in order, into transactions of the topic's cluster
replay_positions        positions of replays: a compacted topic of that cluster
replayed_columns        which columns become key, value, timestamp, headers and partition
json_objects            columns -> JSON objects, a whole batch at a time
ordered_rows            rows in order, sorted on the disk where they are too many for memory
table_source            interface of a table that can be replayed
loaded_parquet_source   a directory that `load` has written, compacted or not
parquet_source          other Parquet files
delta_source            a Delta table (delta-rs)
iceberg_source          an Iceberg table of some catalog (PyIceberg)
"""
