"""A node's side of its cluster's controller, as step objects.

node_lifecycle        it registers, follows the metadata, sends heartbeats, leaves
controller_finder     which actor it takes for the controller, and when it looks for another
node_departure        what it hands over before its machine ends, in which order
producer_id_manager   its producer ids, from blocks that the controller gives out
"""
