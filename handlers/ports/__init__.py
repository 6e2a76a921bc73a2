"""What a handler reaches of the node it runs on, and the types that pass between.

context                       the node, the controller, who is asking
replica_port, group_port, log_dirs_port    partitions, group coordinators, log directories
fetch_session, fetch_answer   what a node remembers of its fetchers; what Fetch answers
server_config                 three layers of settings
request_metrics               what is counted
authorized_operations         what the asker may do
"""
