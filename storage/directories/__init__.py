"""Data directories: their logs, their owner, and what is stored between two runs.

log_directories, log_directory               those of a node; one
replica_directories                          what lies where
directory_identity, partition_directory      whose they are: meta.properties, partition.metadata
directory_checkpoints, directory_deletions   offsets between two runs; deleted partitions
"""
