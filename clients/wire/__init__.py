"""The base of every client: its connections and its view of the cluster.

bootstrap_servers, cluster_client   addresses to connect to; requests to the right node
cluster_view                        nodes, topics, leaders, as the client knows them
connection                          one socket to one broker: requests, answers in order
in_flight_requests                  its requests without an answer, and their time limits
node_api_versions                   versions of requests that its broker knows
connection_security, sasl_login     what its connections have in common; how one says who we are
offset_lookup, coordinator_lookup   questions that several clients ask
record_metadata, interceptors       what users are handed, or hand in
sampled_stats, connection_metrics   metrics
kernels                             when numba is loaded
"""
