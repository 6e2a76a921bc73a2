"""The command line: composes brokers, clients and pipelines for users.

main                     every command, and how one is run
entry_point, __main__    the script `bradbury`; `python -m bradbury.cli`
command_interrupt        Ctrl-C
terminal/                what all commands share: help, options, tables, progress, errors
cluster/                 a cluster: up, down, status, replicas, voters, quotas and more
topics/                  topics, produce, consume, offsets; load, replay, mirror
groups/, transactions/   consumer groups; transactions
users/, acls/            SCRAM users and delegation tokens; ACLs
log/, metadata/          log files, read without a broker; a damaged metadata log, rebuilt
flows/, migrate/         flows of topics into topics and tables; migration from Kafka, and back
bench/, demo/            throughput and latency of a cluster; the main job, end to end
pytest_plugin            pytest fixtures for tests of programs that use Bradbury
"""
