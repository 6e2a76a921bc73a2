"""Guards: what a client must be allowed, API by API, and what it is told where it is not.

guarding          how a guard takes out of a request what is not allowed
record_access, topic_access, group_access, transaction_access, config_access, cluster_access
user_access, token_access   users and their tokens
"""
