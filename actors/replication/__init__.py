"""Drivers of replication/: the partitions of a node, their logs, fetchers, upkeep, moves.

partition_host                      replication/manager: the partitions of one node
hosted_partitions, hosted_replica   partitions as handlers reach them; one replica, with Futures
hosted_log_dirs                     log directories as handlers reach them
conversion_threads                  threads that convert batches which are stored in another form
leader_connections                  a connection to each leader that is followed
controller_request_sender           what steps ask the controller
unreachable_nodes                   nodes that cannot be reached: reported to the controller
log_maintenance_driver              flushes, retention, deletions
log_cleaner                         compaction: its threads and its rate
log_scrubber                        damaged segments found and healed: rounds, threads, connections
intact_token                        whether what was written is still there after a kill
deletion_policy                     the class that bradbury.log.deletion.policy names
"""
