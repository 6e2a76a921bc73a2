"""The consumer: polls whole batches as Arrow tables, alone or as a member of a group.

consumer, async_consumer   the classes Consumer and AsyncConsumer
consumer_config            settings
consumer_positions         seek, pause, positions, lag
positions                  start positions of partitions that have none
poll_steps                 steps of a poll between two waits
thread_waiter              waiting in calls, and wakeup
"""
