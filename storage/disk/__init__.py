"""Files, and what may be wrong with the disk below them.

file_system, storage_failure, disk_guard    what storage asks of a disk; when it fails or is full
checkpoint_file                             small files that are replaced whole
throttler, throttled_replicas               rates of copying between disks and nodes
"""
