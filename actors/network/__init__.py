"""Sockets: the listener, a connection, requests' memory, connections to other nodes."""
