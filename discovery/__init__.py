"""Discovery: which clusters there are and how to reach them, for clients and for launch/.

state_file.py       the file in the user's home that names a cluster that was started here
processes.py        processes by id and start time, as the state file keeps them
ray_connection.py   joining a Ray cluster, with or without a token, or starting an embedded one
bootstrap.py        from nothing, or a little, to the brokers' addresses
"""
