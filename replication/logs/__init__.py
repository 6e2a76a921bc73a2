"""The logs of a node's partitions: from their creation to their deletion.

log_manager                        opened, created, retired, found again
directory_lifecycle                whether a node's directories have all its data
log_flusher, log_maintenance       fsync and checkpoints; retention, deletions, full disks
alter_log_dirs_manager             moves between log directories
"""
