"""Producers of Kafka 0.7.

producer                      sends to the partition that the key asks for
sync_producer                 sends to one broker, and waits
async_producer, event_queue   sends in the background
event_handler, partitioner    hooks
producer_config               settings
"""
