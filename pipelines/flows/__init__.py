"""Flows: topics through a few steps into topics and tables, described in one file.

flow            what a flow is made of, checked (pure)
flow_file       FLOW.yaml or FLOW.py -> a flow
run_flow        `bradbury.run_flow`: one, until its topics' ends or until it is stopped
spark_flow      its steps as Spark SQL and PySpark functions; Spark's checkpoints say how far it is
flow_tables     micro-batches into Delta and Iceberg tables, each once
flow_progress   how far it is
ray_flow        its steps as map_batches of Ray Data; offsets are committed with the records
"""
