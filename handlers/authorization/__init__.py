"""Guards: the rights that a client needs, API by API, and the errors that it gets without them.

guarding                            how a guard takes out of a request what is not allowed
record_access, topic_access         records; topics
group_access, offset_fetch_access   groups; their committed offsets, read
transaction_access                  producers and transactional ids
config_access, quota_access         settings; clients' quotas
cluster_access                      replicas, voters, features, ACLs
user_access, token_access           users' credentials; delegation tokens
"""
