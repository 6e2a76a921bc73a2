"""One partition's log: append, read, flush, retention, truncation, opening.

partition_log                        append and read
log_upkeep, log_flush, retention     what happens to it besides
log_compaction, cleaner_manager      its side of compaction, and which log needs it most
log_loader                           from what is on the disk to a log
batch_validation, batch_conversion   what a producer's batch must be, and what it is made into
leader_epoch_cache                   which leader epoch began where
timestamp_search                     from a time to an offset
"""
