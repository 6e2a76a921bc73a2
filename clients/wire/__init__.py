"""The base of every client: its connections and its view of the cluster.

bootstrap_servers, connection, cluster_client, cluster_view   from address to answer
offset_lookup, coordinator_lookup                             questions that several clients ask
record_metadata, interceptors                                 what users are handed, or hand in
sampled_stats, connection_metrics, kernels                    metrics; when numba is loaded
"""
