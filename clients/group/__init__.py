"""A member's side of a consumer group: joins, assignments, heartbeats, committed offsets.

membership, subscription, rebalance_listener   what the user asks for
consumer_coordinator, member_coordinator       its standing in the group; as a join sees it
group_join, heartbeats, leaving                requests to the coordinator
consumer_protocol                              the bytes that members exchange through it
group_member, offset_committer                 what a poll does for the group; committed offsets
assignor, assignors, sticky_assignor           strategies of assignment
"""
