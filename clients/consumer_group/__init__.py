"""Consumer groups of Ray actors: members that poll, workers that process, one handle for both.

group, members, group_arguments     the handle; its member actors, watched; its arguments
member                              one member: polls, has batches processed, commits
processing/                         its batches between poll and commit, and its workers
results                             what the group's function returned, from all members
group_output, output_committer      where results are written; in transactions, with the offsets
autoscaler, lag_scaling, backlogs   how many members there are, by the lag
worker_actors                       clients as actors, whose handle any task can hold
status                              members, partitions and lag, as a table, too
"""
