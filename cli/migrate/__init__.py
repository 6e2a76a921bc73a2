"""The command `bradbury migrate`: migration from a Kafka cluster to Bradbury, and back.

migrate_command   copy and follow, status, verify, cut-over
migrate_tables    their output
"""
