"""Replication of one node's partitions, as step objects; see docs/design/steps.md.

replica                                  one partition: append, fsync, acknowledge; its followers
delayed_produces, delayed_fetches, delayed_deletes   who waits at a replica, and for what
replica_flush                            its fsyncs, one at a time
served_replicas, topic_log_configs       who is asked for a partition; the settings of its log
replica_manager, log_manager             which partitions the node has, and their logs' life
replica_fetcher, replica_fetcher_manager  followers: fetch, truncate, append; one for each leader
alter_partition_manager                  ISR changes on their way to the controller
offline_replicas_manager                 what is in failed directories, said to the controller
directory_lifecycle                      whether a node's directories have all its data
log_flusher, log_maintenance             fsync and checkpoints; retention, deletions, full disks
alter_log_dirs_manager                   moves between log directories
replication_throttle                     how fast replicas that catch up are copied
procedure, storage_work                  sequences of steps; work that waits for the disk
effects, partition_effects               what the steps ask of their drivers
"""
