"""Ray: actors around nodes and controllers, their placement, drains, Ray's own metrics.

ray_actors             the processes of a cluster: thin shells around a node, a controller
placement              which actors run where (pure)
node_watch             Ray nodes that join get their broker
ray_nodes              the Ray nodes there are, and those about to go, as the GCS has them
ray_drain, departure   the notice that a Ray node is drained; what a node does before it goes
ray_metrics            a node's main figures in Ray's own metrics
secure_folder          what `bradbury up --secure` keeps in every node's data directory
"""
