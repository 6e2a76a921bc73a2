"""Authentication and authorization: listener settings and the rules for access. Pure.

security_config, listener_config   settings of all listeners; one listener, put together from them
advertised_listeners               where clients and nodes are told that a node listens
principal_mapping                  from a certificate's subject to a short name
sasl/                              the broker's side of SASL mechanisms
authorizer                         decides about one operation on one resource
acl_index                          finds the rules that are about a resource
"""
