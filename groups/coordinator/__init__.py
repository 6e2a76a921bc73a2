"""Group coordinator of one partition of `__consumer_offsets`; coordinators/ runs it.

coordinator            one shard of the group coordinator: requests in, effects out
coordinator_requests   requests of members and operators
offset_requests        requests about committed offsets: who may, and what then
coordinator_state      what the log says: groups and their offsets
tombstone_batches      tombstones of groups and offsets, in batches
group_coordinators     group coordinators as coordinators/ runs them
"""
