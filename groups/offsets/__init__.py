"""Committed offsets.

committed_offsets   those of all groups of one partition of `__consumer_offsets`
group_offsets       those of one group
offset_retention    which groups are looked at for expired offsets, and when
"""
