"""A member's side of a consumer group: joins, assignments, heartbeats, committed offsets.

membership, subscription, rebalance_listener          what the user asks for
consumer_coordinator, member_coordinator, group_join, heartbeats, leaving, consumer_protocol
                                                      requests to the coordinator
group_member, offset_committer                        what a poll does for the group
assignor, assignors, sticky_assignor                  strategies of assignment
"""
