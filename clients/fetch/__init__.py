"""Fetches from leaders, decoded to Arrow tables.

fetch_request, fetch_state, fetcher   one parked request per leader, answers undecoded
record_stream, batch_reader           answers as tables, or as undecoded batches
fetch_failures                        log messages about partitions that cannot be fetched
consumer_metrics                      metrics of a consumer
"""
