"""The Ray-native clients. They meet the broker only on the wire.

wire            sockets, threads, the view of the cluster
producer        Producer, AsyncProducer
fetch           from a leader's log to Arrow tables
group           a member's side of a consumer group
consumer        Consumer, AsyncConsumer
admin           Admin
quotas          its calls about quotas
classic         the 0.7 clients: Producer, SimpleConsumer, ConsumerConnector
consumer_group  ConsumerGroup, ConsumerActor, ProducerActor: clients as Ray actors
"""
