"""File access, and the failures of the disk below.

file_system                     what storage asks of a disk
storage_failure, disk_guard     when it fails; when it is full
checkpoint_file                 small files that are replaced whole
throttler, throttled_replicas   rates of copying between disks and nodes
"""
