"""Fetching: from a leader's log to Arrow tables.

fetch_request, fetch_state, fetcher   one parked request per leader, answers undecoded
record_stream, batch_reader           answers become tables, or are copied as they are
fetch_failures                        what keeps a partition from being fetched, said in the log
consumer_metrics                      what was read
"""
