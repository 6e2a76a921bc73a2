"""Starting and stopping of clusters; above brokers and clients.

cluster   a cluster on Ray: up, connect, Cluster
actors    its actors by name: created, waited for, asked, stopped
local     a cluster in this process, without Ray
processes/  nodes of local() in processes of their own
secure/   what `bradbury up --secure` adds: certificates, a user
"""
