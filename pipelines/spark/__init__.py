"""The Spark bridge: a Python Data Source over the Ray-native clients.

session, jvm, executors   sessions on RayDP or in this process; their JVMs; room for executors
job_session               the session of a flow or load: the one that is there, or one of its own
source                    format("bradbury"), as Spark calls it
topic_view                topics as temporary views for spark.sql
reading/                  batch queries, micro-batches, their offsets (records: ../ranges)
writing/                  rows to topics, at least once or in transactions
options/                  what a user may ask for, checked
tasks/                    in Spark's Python workers: clients, rows, failures
"""
