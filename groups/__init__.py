"""Floor 1: consumer groups. Pure rules: events and time in, effects out.

coordinator/    one partition of `__consumer_offsets`: its requests, loading, timers
classic/        one classic group: members, rebalances, generations
offsets/        committed offsets and their expiration
group_records   the records of `__consumer_offsets`
group_effects, group_counters, group_config, dynamic_group_config   what all of them share
"""
