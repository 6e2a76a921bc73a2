"""The consumer: polls whole batches as Arrow tables, alone or as a member of a group.

consumer, async_consumer              what users call
consumer_config                       its settings
consumer_positions, positions         where it reads, and from where if that is not known
poll_steps                            what a poll does between two waits
"""
