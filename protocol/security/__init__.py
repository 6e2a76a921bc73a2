"""What broker and clients share of SASL: the same formulas and messages on both sides. Pure.

scram            RFC 5802: keys, signatures, proofs; how names are escaped
scram_messages   the four messages of SCRAM
jaas             Kafka's sasl.jaas.config
"""
