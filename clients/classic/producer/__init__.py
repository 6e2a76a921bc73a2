"""Producers of Kafka 0.7.

producer                      sends to partitions chosen by key
sync_producer                 sends to given partitions, and waits
async_producer, event_queue   sends in the background
event_handler, partitioner    hooks
producer_config               settings
"""
