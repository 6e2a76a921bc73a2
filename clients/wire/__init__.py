"""The base of every client: sockets and the thread that serves them, the view of the cluster.

bootstrap, connection, io_thread, cluster_client, metadata    from an address to an answer
list_offsets, coordinator_lookup                              questions that several clients ask
topic_partition, awaitable_future, interceptors               what users are handed, or hand in
call_thread, loop_waiter, observed_condition                  between threads and coroutines
sampled_stats, connection_metrics, kernels                    metrics; when numba is loaded
"""
