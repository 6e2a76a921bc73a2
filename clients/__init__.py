"""The Ray-native clients. They meet the broker only on the wire.

wire/, threads/   sockets and the view of the cluster; threads beside coroutines
security/         TLS and SASL: how a client shows who it is
producer/         Producer, AsyncProducer
fetch/            from a leader's log to Arrow tables
group/            a member's side of a consumer group
consumer/         Consumer, AsyncConsumer
admin/, quotas/   Admin; its calls about quotas
schemas/          SchemaRegistry, RegistrySerializer: schemas of values, and their ids
queue/            Queue: items that processes share, as records of a topic
consumer_group/   ConsumerGroup, ConsumerActor, ProducerActor: clients as Ray actors
classic/          the 0.7 clients: Producer, SimpleConsumer, ConsumerConnector
"""
