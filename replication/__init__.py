"""Replication of one node's partitions, as step objects; see docs/design/steps.md.

manager/                  which partitions the node has; what it tells the controller
followers/                fetch, truncate, append; one fetcher for each leader
logs/                     their life, fsync, checkpoints, retention, moves between directories
partition/                one replica: append, acknowledge, who waits at it
procedure, storage_work   sequences of steps; work that waits for the disk
effects                   what the steps ask of their drivers
"""
