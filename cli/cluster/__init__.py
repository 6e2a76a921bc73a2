"""Commands about a cluster: up, down, status, rebalance, drain, replicas, voters, dirs, quotas.

cluster_commands, background       `bradbury up` and `down`; `up --detach` without a Ray cluster
status_command                     the cluster's actors and their problems
client_config_command              the settings that other clients need to connect
client_config_forms                the same as Java, librdkafka and Python write them
rebalance_command, copy_throttle   `rebalance` and `drain`; their throttle
replicas_command, dirs_command     replicas and leaders of partitions; log directories
voters_command                     voters of the metadata log: show, add, remove
quotas_command                     client quotas
running_cluster                    the cluster that a command is about, and the options that name it
"""
