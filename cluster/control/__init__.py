"""What the controller decides: a request and the present image in, records and an answer out.

controller_request, controller_state      a request; the state that requests are decided on
topic_control, partition_control          topics, their partitions and leaders
alter_partition                           other in-sync replicas, as a leader asks for them
offline_replicas                          others lead what a failed directory holds
reassignment, rebalance                   other replicas; which moves even the load
access/                                   users, delegation tokens, rules of access
config_control, node_control, poll_times  settings; nodes; when each node last sent a heartbeat
"""
