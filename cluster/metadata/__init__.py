"""Cluster metadata that all nodes know, and what is derived from it.

metadata_image, metadata_records   the state at one offset of the metadata log; the log's records
user_records                       records of users' credentials and tokens
client_quotas                      quotas of clients as a part of the image
listener_address                   where a node listens
features                           feature levels
cluster_health                     offline and under-replicated partitions, in numbers
concerned_nodes, departed_nodes    whom a change concerns; nodes that were fenced a moment ago
metadata_recovery                  metadata made again, from what is left of the old log
"""
