"""Requests that the controller decides: a request and the current image in, records and an answer
out.

controller_request, controller_state   a request; the state that requests are decided on
topic_control, partition_control       topics, their partitions and leaders
metered_request                        requests that count against a quota of partitions (KIP-599)
alter_partition                        other in-sync replicas, as a leader asks for them
offline_replicas                       others lead what a failed directory holds
reassignment, rebalance                other replicas; which moves even the load
automatic_rebalance                    partitions go to nodes that have none, unasked
throttled_moves                        which replicas of a move are held to a rate
access/                                users, delegation tokens, ACLs
config_control, client_quota_control   settings; quotas of clients
node_control, poll_times               nodes that go for good; when each node last asked for news
"""
