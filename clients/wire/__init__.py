"""The base of every client: sockets and the thread that serves them, the view of the cluster.

bootstrap_servers, connection, io_thread, cluster_client, cluster_view    from address to answer
offset_lookup, coordinator_lookup                             questions that several clients ask
record_metadata, awaitable_future, interceptors               what users are handed, or hand in
call_thread, loop_waiter, observed_condition                  between threads and coroutines
sampled_stats, connection_metrics, kernels                    metrics; when numba is loaded
"""
