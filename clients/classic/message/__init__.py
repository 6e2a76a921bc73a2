"""Common parts of producers and consumers of Kafka 0.7.

message, message_set   messages; a buffer of batches
serializer, errors     encoders and decoders; exceptions
properties             settings by 0.7's names
"""
