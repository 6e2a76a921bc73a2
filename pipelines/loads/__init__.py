"""Topics into tables, each record once: offsets that live with the output.

load                              reads what is new, writes it, commits; once, or on and on
loaded_offsets                    how far a table is, and which ranges come next (pure)
load_rows                         records -> rows of a table, with its partition column
load_engine, load_task            where rows are read and files written: here, by Spark, by Ray; and
                                  one task of it
load_target                       what a table must be able to do to be loaded
compaction                        which small files become one (pure)
table_files                       the Parquet files of a commit, in whatever table
parquet_target, loaded_files      a directory of Parquet files, with its own commits; which rows
                                  are in which of its files
delta_target                      a Delta table (delta-rs)
iceberg_target, iceberg_catalog   an Iceberg table (PyIceberg); where it is
"""
