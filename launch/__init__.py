"""Starting and stopping of clusters; above brokers and clients.

cluster.py   a cluster on Ray: up, connect, Cluster
actors.py    its actors by name: created, waited for, asked, stopped
local.py     a cluster in this process, without Ray
"""
