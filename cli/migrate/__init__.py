"""`bradbury migrate`: from a Kafka cluster to here, and back.

migrate_command   copy and follow, status, verify, cut-over
migrate_tables    what these print
"""
