"""Sockets: the listener, a connection, requests' memory, connections to other nodes.

socket_server, acceptor            the listeners of a node, their connections; one listening socket
node_listeners                     the ports of a node, the last run's again; its addresses
client_connection                  one client's frames, in order
network_receive, response_queue    a request that has not come whole; responses on their way out
shared                             what the connections of one node have in common
request_memory                     memory for requests in receipt and in work, and for answers
refusal_delay                      when a connection with a request that is not served is closed
page_cache                         whether a slice of a file is in memory, and bringing it there
kernel_tls                         TLS left to Linux, where it has it
tls_connection, tls_socket         a client connection behind TLS; TLS on a non-blocking socket
tls_contexts                       TLS contexts from Kafka's `ssl.*` settings
peers, peer_connection             connections to other nodes; one of them
"""
