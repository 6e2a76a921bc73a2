"""APIs about who may do what: ACLs and SASL, answered as Kafka does without an authorizer."""
