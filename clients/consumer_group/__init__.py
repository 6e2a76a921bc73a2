"""Consumer groups of Ray actors: members that poll, workers that process, one handle for both.

group, members, group_arguments     the handle; its member actors, watched; its arguments
member                              one member: polls, has batches processed, commits
member_consumer, member_rebalances  its consumer, and what ends a poll; partitions that come and go
commit_calls                        calls of `commit`, until they are served
processing/                         its batches between poll and commit, and its workers
results                             results of the group's function, from all members
group_output, output_committer      output of functions, written with the offsets in transactions
autoscaler, lag_scaling, backlogs   number of members, chosen by the lag
worker_actors                       clients as actors, with handles that any task can hold
status                              members, partitions and lag; also as a table
"""
