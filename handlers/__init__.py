"""Floor 3: one Kafka API per file: request + ports -> response.

server      from a frame to a response
ports       what a handler reaches
records, topics, configs, groups, cluster, security    the APIs
"""
