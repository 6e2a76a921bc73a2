"""One partition on this node: its replica, which leads or follows, and the requests waiting at it.

replica                              append, acknowledge; its followers; the high watermark
replica_flush                        its fsyncs, one at a time
conversion_queue                     which batches are converted, and their order into the log
delayed_produces, delayed_fetches    who waits at it: for a commit, for more to read
delayed_delete_records                      who waits for all in sync to have dropped records
marker_append                        markers of transactions
served_replicas, topic_log_configs   who is asked for a partition; the settings of its log
replication_throttle                 how fast replicas that catch up are copied
partition_effects                    what becomes of replicas, for the drivers
"""
