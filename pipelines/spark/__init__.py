"""The Spark bridge: a Python Data Source over the Ray-native clients.

session, jvm, executors      sessions on RayDP or in this process; their JVMs; room for executors
source, sink                 format("bradbury"), as Spark calls it: reading, writing
batch_query, stream_reader   a batch query; micro-batches
spark_options, option_table  what a user may ask for, checked; all the names there are
offsets, offset_reader       ranges for tasks, pure; the questions to the cluster behind them
arrow                        records as the rows that Spark takes (fetched by ../ranges)
worker                       what a Python worker of Spark keeps from task to task
spark_failure                what a session or a query fails with, in one line
"""
