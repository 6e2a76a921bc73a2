"""Log of one partition: append, read, flush, retention, truncation, opening.

partition_log                        append, read, truncate
local_log                            its files: segments, epochs, producer snapshots
log_flush, retention                 the recovery point and fsync; which old segments go
log_compaction, cleaner_manager      its side of compaction, and which log needs it most
log_loader, log_leftovers            from what is on the disk to a log; what a crash interrupted
batch_validation, batch_conversion   what a producer's batch must be, and what it is made into
follower_batches                     what a leader has sent, checked before it is written
leader_epoch_cache                   which leader epoch began where
aborted_transactions                 what a reader of committed records leaves out
timestamp_search                     from a time to an offset
log_damage                           what cannot be read any more
segment_patch                        a damaged segment made again, with another replica's records
"""
