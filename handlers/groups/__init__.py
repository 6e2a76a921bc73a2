"""APIs about consumer groups: FindCoordinator, JoinGroup, OffsetCommit and their kin.

find_coordinator, offsets_topic   where a coordinator is; `__consumer_offsets` as it is made
join_group, sync_group            a member enters; the assignment
heartbeat, leave_group            a member lives; members go
offset_commit, offset_fetch       a group's positions, stored and read
txn_offset_commit                 positions that are stored in a transaction
offset_delete, delete_groups      single offsets go; groups go
describe_groups, list_groups      state, members, assignments; the groups of this node
group_request                     what these handlers share
"""
