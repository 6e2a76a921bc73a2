"""Logs of a node's partitions: from their creation to their deletion.

log_manager                    opened, created, retired, found again
directory_lifecycle            whether a node's directories have all its data
log_flusher, log_maintenance   fsync and checkpoints; retention, deletions, full disks
log_compactor                  which log is compacted next, and how its cleaning becomes the log
log_scrub                      which segments are examined before a reader comes to them
segment_healer                 what is damaged in a segment, and how it is rebuilt
segment_sources                which nodes may have what it has lost
alter_log_dirs_manager         moves between log directories
clean_stop                     in which order what works on the logs ends
"""
