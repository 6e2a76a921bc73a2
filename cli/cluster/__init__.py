"""Commands about a cluster: up, down, status, rebalance, drain, replicas, voters, dirs, quotas.

cluster_commands, background       `bradbury up` and `down`; `up --detach` without a Ray cluster
status_command                     the cluster's actors, and what is wrong with them
client_config_command              what clients of others are given to connect
rebalance_command, copy_throttle   `rebalance` and `drain`; how fast they copy
replicas_command, dirs_command     where partitions are, who leads; the log directories
voters_command                     which machines hold the metadata, and other ones
quotas_command                     how much of each node a client may use
running_cluster                    the cluster that a command is about, and how it is reached
"""
