"""Floor 1: the log of one partition on one disk. Touches files only through the FileSystem port.

log_config     a topic's settings of its log
disk/          files, and what may be wrong with the disk below them
segments/      files of record batches with indexes next to them
producers/     what idempotent producers have written last
cleaner/       compaction
log/           one partition's log
directories/   data directories and the logs in them
"""
