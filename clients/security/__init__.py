"""Authentication and encryption of clients: TLS and SASL.

security_options     Kafka's settings, `security.protocol`, `ssl.*` and `sasl.*`, checked
client_config_file   the same from a file, as Kafka's tools take with --command-config
java_properties      lines of such a file, with Java's escapes
oauth_tokens         tokens of OAUTHBEARER: from a function, a file, or an endpoint
tls_transport        TLS on a connection's socket
"""
