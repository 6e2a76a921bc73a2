"""Loads of topics into tables, each record exactly once: offsets are stored with the output.

load                              reads new records, writes them, commits; once or continuously
loaded_offsets                    offsets loaded into a table, and which ranges come next (pure)
load_rows                         records -> rows of a table, with its partition column
load_engine, load_task            where rows are read and files written: here, by Spark, by Ray; and
                                  one task of it
load_target                       interface of a table that can be loaded
compaction                        which small files become one (pure)
table_files                       the Parquet files of a commit, for all table formats
table_format                      refuses a directory that has a table of another format
parquet_target, loaded_files      a directory of Parquet files, with its own commits; which rows
                                  are in which of its files
delta_target                      a Delta table (delta-rs)
iceberg_target, iceberg_catalog   an Iceberg table (PyIceberg); its catalog
"""
