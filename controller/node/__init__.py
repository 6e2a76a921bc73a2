"""A node's side of its cluster's controller, as step objects.

node_lifecycle        it registers, follows the metadata, sends heartbeats, leaves
producer_id_manager   its producer ids, from blocks that the controller gives out
"""
