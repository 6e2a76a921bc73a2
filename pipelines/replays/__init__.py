"""Replays of tables into topics, each row exactly once: positions are committed with the records.

replay_table       `bradbury.replay`: writes rows in order, in transactions of the topic's cluster
replay_positions   positions of replays: a compacted topic of that cluster
replayed_columns   choice of columns for key, value, timestamp, headers and partition
json_objects       columns -> JSON objects, a whole batch at a time
ordered_rows       sorted rows, on disk if they do not fit into memory
table_source       interface of a table that can be replayed
parquet_source     a directory written by `load`, or other Parquet files
delta_source       a Delta table (delta-rs)
iceberg_source     an Iceberg table of some catalog (PyIceberg)
"""
