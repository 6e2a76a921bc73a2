"""Client of a schema registry: one with Confluent's API, as Karapace and Apicurio also have it.

wire_format          the prefix of a value: 0, the schema's id, Protobuf's message indexes (pure)
registered_schema    a schema with its references, as the registry has it
registry_request     one HTTP request with its retries; failures as one sentence
schema_registry      SchemaRegistry: schemas by id and by subject, kept for the process
avro_errors          what is wrong with an Avro schema, in words (pure)
protobuf_schema      Protobuf descriptors <-> the text that a registry stores
registry_serializer  RegistrySerializer: values -> framed bytes, for producers
"""
