"""Client side of a queue: the parts of a process's connection to the queue's actor.

prefetched_items   items that the actor has sent ahead
consumed_reports   items that were consumed, until the actor confirms that they are committed
queue_requests     requests that have no answer yet
frame_sender       frames on their way to the actor
"""
