"""Quotas of clients and limits of connections. Pure: the time comes as an argument.

quota_entity         whose quota it is, and which quotas there are
quota_filter         which of them a question of DescribeClientQuotas is about
quota_limits         which of several quotas counts for a client
quota_rate           how a rate is measured, and how long it takes to come down
client_quota_rates   the rates of all clients of a node, for one kind of quota
mutation_quotas      changes of topics: buckets of tokens, in the controller
connection_quotas    connections of a node and of its listeners: which is refused, which waits
"""
