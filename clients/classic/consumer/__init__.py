"""Consumers of Kafka 0.7.

simple_consumer                    fetch from one broker at given offsets
consumer_connector, kafka_stream   streams of a group; one stream
topic_filter, turns                filters of topics; a fair lock
consumer_config                    settings
"""
