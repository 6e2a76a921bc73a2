"""Drivers of coordinators/: a coordinator for each led partition of __consumer_offsets and
__transaction_state.

coordinator_host                      the coordinators of one kind on one node, by led partition
coordinator_driver                    one partition's coordinator: Futures, reads in a thread
group_host, group_shard               groups/
lag_reader                            the lag of this node's groups, read on request
transaction_host, transaction_shard   transactions/
transaction_marker_sender             the markers of this node's coordinators, to the leaders
transaction_partitions                what this node's leaders ask transaction coordinators
node_requests                         requests to the nodes of the cluster, its own among them
"""
