"""Committed offsets.

committed_offsets                those of all groups of one partition of `__consumer_offsets`
group_offsets, pending_offsets   those of one group; those in its open transactions
offset_retention                 which groups are looked at for expired offsets, and when
lag_query                         one look at how far groups are behind
"""
