"""The Ray-native clients. They talk to brokers only by the wire protocol.

wire/, threads/   sockets and the view of the cluster; threads beside coroutines
security/         TLS and SASL: encryption and authentication of a client
producer/         Producer, AsyncProducer
fetch/            fetches of batches from leaders, decoded to Arrow tables
group/            member side of the consumer group protocol
consumer/         Consumer, AsyncConsumer
admin/, quotas/   Admin; its calls about quotas
schemas/          SchemaRegistry, RegistrySerializer: schemas of values, and their ids
queue/            Queue: items that processes share, as records of a topic
consumer_group/   ConsumerGroup, ConsumerActor, ProducerActor: clients as Ray actors
classic/          the 0.7 clients: Producer, SimpleConsumer, ConsumerConnector
"""
