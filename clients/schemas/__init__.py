"""Schemas that a registry keeps: Confluent's API, which Karapace, Apicurio and others speak, too.

wire_format          0, the schema's id, Protobuf's message indexes: what is before a value (pure)
registered_schema    a schema with its references, as the registry has it
registry_request     one HTTP request, its retries, and its failures in a sentence
schema_registry      SchemaRegistry: schemas by id and by subject, kept for the process
protobuf_schema      descriptors <-> what a registry has of them
registry_serializer  RegistrySerializer: values -> framed bytes, for producers
"""
