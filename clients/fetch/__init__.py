"""Fetches from leaders, decoded to Arrow tables.

fetcher                               one parked request per leader, for all its partitions
fetch_request, fetch_state            that request; a partition that is read
fetch_responses, fetch_buffer         what answers mean; those that wait to be decoded
position_lookup                       partitions that have no position
record_stream, batch_reader           answers as tables, or as undecoded batches
fetch_failures                        log messages about partitions that cannot be fetched
consumer_metrics                      metrics of a consumer
"""
