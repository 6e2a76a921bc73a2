"""Loads of topics into tables, each record exactly once: offsets are stored with the output.

load                              reads new records, writes them, commits; once or continuously
loaded_offsets                    offsets loaded into a table, and which ranges come next (pure)
load_rows                         records -> rows of a table, with its partition column
load_engine, load_task            where rows are read and files written: this process, Spark or Ray;
                                  one task
load_target                       interface of a table that can be loaded
table_files                       the Parquet files of a commit, in any kind of table
parquet_target                    a directory of Parquet files, with its own commits
delta_target                      a Delta table (delta-rs)
iceberg_target, iceberg_catalog   an Iceberg table (PyIceberg); its catalog
"""
