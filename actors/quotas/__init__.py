"""Enforcement of clients' quotas on a node: clocks, timers and sockets beside cluster/quotas.

node_quotas     what handlers and listeners ask
timed_request   the time that a request takes
muting          a connection that is not read from for a while
held_sockets    one that is not served at all
"""
