"""The consumer: polls whole batches as Arrow tables, alone or as a member of a group.

consumer, async_consumer   what users call
consumer_config            its settings
consumer_positions         where it reads: seek, pause, positions, lag
positions                  from where it reads what has no position yet
poll_steps                 what a poll does between two waits
thread_waiter              how its calls wait, and wakeup
"""
