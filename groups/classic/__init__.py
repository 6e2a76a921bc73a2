"""One classic consumer group (the join/sync protocol).

classic_group                   requests and timers in, effects out
group_rebalance                 the phases of a rebalance; where a generation begins
static_rejoin                   a static member that was started again
group_metadata, group_members   the state that these share
supported_protocols             which protocols all of them support
group_state, group_view         the states; what others see of a group
event_effects, join             effects of one event; a JoinGroup
consumer_subscription           a consumer's topics
"""
