"""Discovery: the running clusters and their addresses, for clients and for launch/.

bootstrap        from nothing, or a little, to the brokers' addresses
client_config    the file of security settings for a client that is given none
state_file       the file in the user's home that names a cluster that was started here
processes        processes by id and start time, as the state file keeps them
ray_connection   joining a Ray cluster, or starting an embedded one
ray_tokens       with or without a token: which mode a Ray cluster has
ray_errors       errors of starting, finding and joining
byte_code        byte code files of processes that are started, also where the environment has none
extras           optional dependencies, and the command that installs them
"""
