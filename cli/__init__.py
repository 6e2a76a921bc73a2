"""The command line: composes brokers, clients and pipelines for users.

main, __main__           `bradbury`; `python -m bradbury.cli`
terminal/                what all commands share: help, options, tables, progress, errors
cluster/                 a cluster: up, down, status, replicas, voters, quotas and more
topics/                  topics, produce, consume, offsets; load, replay, mirror
groups/, transactions/   consumer groups; transactions
users/, acls/            who may log in; who may do what
log/, metadata/          the files of logs, without a broker; a metadata log made again
flows/, migrate/         flows of topics into topics and tables; from Kafka to here, and back
bench/, demo/            how fast a cluster is from here; the main job, end to end
pytest_plugin            pytest fixtures for tests of programs that use Bradbury
"""
