"""All partitions of a node, and its reports about them to the controller.

replica_manager            which partitions the node has, leads and follows
replicas_to_create         those whose logs could not be made, tried again
alter_partition_manager    ISR changes on their way to the controller
offline_replicas_manager   what is in failed directories, said to the controller
broker_metadata_publisher  in which order a node takes over a new image of the metadata
node_join                  in which order a node joins its cluster
node_close                 in which order a node ends
"""
