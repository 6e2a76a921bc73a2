"""The active controller, and how it changes the metadata.

quorum_controller   calls, and what becomes of them
change_queue        changes, one at a time: decided, durable on a majority, applied
metered_changes     those that clients ask for, decided with or without a meter
cluster_control     nodes that register, are fenced, and come back
periodic_tasks      what is looked after from time to time
voter_changes       one voter more, or one less
"""
