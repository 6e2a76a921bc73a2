"""Consumers of Kafka 0.7.

simple_consumer                    fetch from one broker at given offsets
consumer_connector, kafka_stream   streams of a group; one of them
topic_filter, turns                which topics; whose turn it is among partitions
consumer_config                    settings
"""
