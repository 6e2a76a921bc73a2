"""Floor 1: replicas and the controller's metadata. Pure rules.

metadata/    the image of the cluster, its records, what follows from it
quorum/      voters, epochs and the metadata log that they share
partition/   one partition: its leader's and followers' state, who leads, who is in sync
security/    who somebody is, and may do what
control/     what the controller decides for each request
broker_config, client_metrics_config, topic_name   settings and names
"""
