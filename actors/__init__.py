"""Floor 4: Ray, sockets, clocks, tasks. Drives the steps, decides nothing.

node           one listening process
loop           what drivers share
network        sockets
replication, controller, groups    drivers of the packages of these names
metrics        GET /metrics
ray            actors, placement
"""
