"""Ports of a handler to the node it runs on, and the types that pass between.

context, client_session        the node and the controller; who is asking
api, access                    one API as its handler declares it; what a client must be allowed
replica_port, log_dirs_port    partitions; log directories
group_port, transaction_port   the coordinators on this node
quota_port                     the quotas of who is asking
answer_or                      an answer that is there now, or later
produce_answer, fetch_answer   what Produce and Fetch answer, where that is no message
fetch_session                  what a node remembers of its fetchers
server_config                  three layers of settings
request_metrics                what is counted
authorized_operations          what the asker may do
"""
