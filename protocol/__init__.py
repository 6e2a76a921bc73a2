"""Floor 0: bytes <-> values. Pure.

messages/   the requests and answers of each API, generated from Kafka's schemas
columns/    records as columns: encode, decode, Arrow
security/   SASL: SCRAM and jaas, as both sides need them
records/    record batches, message sets, compression, as on the wire and in the log
schema, codec, varint, header, message_generator    how messages are described, read and written
request_frame                                       a request as one frame, and its answer
error_code, errors                                  Kafka's codes; our exceptions
buffer, config_key, partitioner, fetch_session_epoch   what both sides share
topic_partition             the names of a partition: by topic, by topic id
kernel_loading              when numba is loaded
"""
