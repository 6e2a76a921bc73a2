"""What producers and consumers of Kafka 0.7 share.

message, message_set   a message; several, as one buffer
serializer, errors     encoders and decoders; exceptions
properties             settings in Java's notation
"""
