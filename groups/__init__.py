"""Floor 1: consumer groups. Pure rules: events and time in, effects out.

These are groups of the classic protocol (JoinGroup, SyncGroup, Heartbeat). Kafka's `consumer`
protocol (KIP-848), its share groups and its streams groups are not there.

coordinator/           one partition of `__consumer_offsets`: its requests, its log
classic/               one classic group: members, rebalances, generations
offsets/               committed offsets, their expiration, and the lag
group_records          the records of `__consumer_offsets`
group_effects          what the rules ask of the outside
group_counters         what the groups of a node have done and hold
append_error           what a client is answered when its record could not be appended
group_config           settings of the coordinator
dynamic_group_config   settings of a single group, which classic ones do not look at
"""
