"""The Spark bridge: a Python Data Source over the Ray-native clients.

session, jvm, executors   sessions on RayDP or in this process; their JVMs; resources of executors
job_session               the session of a flow or load: the active one, or a new one
source                    format("bradbury"), the data source that Spark calls
local_read                `read_local`, whose tasks run where partitions have their leaders
query_lag                 `offsets_behind`, the lag of a streaming query
topic_view                topics as temporary views for spark.sql
reading/                  batch queries, micro-batches, their offsets (records: ../ranges)
writing/                  rows to topics, at least once or in transactions
options/                  options of the data source, validated
tasks/                    code that runs in Spark's Python workers: clients, rows, failures
"""
