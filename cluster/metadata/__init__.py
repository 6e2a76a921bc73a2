"""What all nodes know of the cluster, and what follows from it.

metadata_image, metadata_records   the state at one offset of the metadata log; the log's records
user_records                       records of users' credentials
features                           feature levels
cluster_health                     offline and under-replicated partitions, in numbers
concerned_nodes, departed_nodes    whom a change concerns; nodes that were fenced a moment ago
"""
