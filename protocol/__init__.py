"""Floor 0: bytes <-> values. Pure.

messages/                          requests and answers of each API, from Kafka's schemas
columns/                           records as columns: encode, decode, Arrow
security/                          SASL and ACLs, as both sides need them
records/                           record batches, message sets, compression
schema, codec, varint, header      messages described, read and written
message_generator                  writes messages/ and error_code
request_frame                      a request as one frame, and its answer
error_code, errors                 Kafka's codes; our exceptions and texts
topic_partition, topic_name        the names of a partition; rules for topic names
principal                          who a client is: a kind and a name
buffer, config_key                 bytes that are read without a copy; settings with Kafka's names
partitioner, fetch_session_epoch   a record's partition; epochs of fetch sessions
kernel_loading                     when numba is loaded
"""
