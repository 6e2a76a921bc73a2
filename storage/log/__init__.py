"""One partition's log: append, read, flush, retention, truncation, opening.

partition_log                        append, read, truncate
local_log                            its files: segments, epochs, producer snapshots
log_flush, retention                 the recovery point and fsync; which old segments go
log_compaction, cleaner_manager      its side of compaction, and which log needs it most
log_loader                           from what is on the disk to a log
batch_validation, batch_conversion   what a producer's batch must be, and what it is made into
leader_epoch_cache                   which leader epoch began where
timestamp_search                     from a time to an offset
"""
