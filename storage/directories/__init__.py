"""Data directories: the logs in them, whose they are, what they remember between two runs.

log_directories, log_directory               those of a node; one
replica_directories                          what lies where
directory_identity, partition_directory      whose they are: meta.properties, partition.metadata
directory_checkpoints, directory_deletions   offsets between two runs; deleted partitions
"""
