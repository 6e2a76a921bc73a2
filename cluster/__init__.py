"""Floor 1: replicas and the controller's metadata. Pure rules.

metadata/               the image of the cluster, its records, what follows from it
quorum/                 voters, epochs and the metadata log that they share
partition/              one partition: leader's and followers' state, who leads, who is in sync
security/               authentication and authorization
quotas/                 quotas of clients
control/                decisions of the controller for each request
broker_config           settings of brokers
daily_hours             hours in which background work may run
client_metrics_config   settings of subscriptions to clients' metrics
"""
