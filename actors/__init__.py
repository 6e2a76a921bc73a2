"""Floor 4: Ray, sockets, clocks, tasks. Drives the steps, decides nothing.

node, node_membership                      one listening process; its life with the controller
node_storage                               what it has on its disks
loop/                                      what drivers share
network/                                   sockets
replication/, controller/, coordinators/   drivers of the packages of these names
quotas/, security/                         how much clients may use, and what they may do
metrics/                                   GET /metrics
ray/                                       actors, placement, drains
"""
