"""The logs of a node's partitions: from their creation to their deletion.

log_manager                    opened, created, retired, found again
directory_lifecycle            whether a node's directories have all its data
log_flusher, log_maintenance   fsync and checkpoints; retention, deletions, full disks
log_compactor                  which log is compacted next, and how its cleaning becomes the log
segment_sources                which nodes may have what a damaged segment has lost
alter_log_dirs_manager         moves between log directories
"""
