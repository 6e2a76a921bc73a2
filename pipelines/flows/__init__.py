"""Flows: topics through a few steps into topics and tables, described in one file.

flow            parts of a flow, validated (pure)
flow_file       reads FLOW.yaml or FLOW.py
run_flow        `bradbury.run_flow`: runs a flow to its topics' ends or until it is stopped
spark_flow      runs Spark SQL and PySpark steps; progress is kept in Spark's checkpoints
flow_tables     writes micro-batches to Delta and Iceberg tables, each exactly once
batch_targets   writes targets whose rows come from no stream, whole in each run
target_records  rows as records of a topic
flow_topics     whether its topics exist
flow_progress   progress of a flow
ray_flow        runs map_batches steps of Ray Data; offsets are committed with the records
"""
