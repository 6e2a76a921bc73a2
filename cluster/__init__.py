"""Floor 1: replicas and the controller's metadata. Pure rules.

metadata/               the image of the cluster, its records, what follows from it
quorum/                 voters, epochs and the metadata log that they share
partition/              one partition: leader's and followers' state, who leads, who is in sync
security/               who somebody is, and may do what
quotas/                 how much of a node one client may use
control/                what the controller decides for each request
broker_config           settings of brokers
daily_hours             in which something may go on
client_metrics_config   settings of subscriptions to clients' metrics
topic_name              which topic names are allowed
"""
