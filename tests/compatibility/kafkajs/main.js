// What kafkajs does against a cluster, one command at a time; see tests/compatibility/support/programs.py.
'use strict'

const { CompressionTypes, ConfigResourceTypes, Kafka, Partitioners, logLevel } = require('kafkajs')

const [command, given] = process.argv.slice(2)
const {
  servers, topic, group: groupId, codec, count, idempotent, firstMs, id, output, size, abortEvery,
} = JSON.parse(given)
const kafka = new Kafka({ brokers: servers, clientId: 'kafkajs-program', logLevel: logLevel.ERROR })

const say = line => process.stdout.write(JSON.stringify(line) + '\n')

const message = number => ({
  key: `key-${number % 50}`,
  value: `value-${number}`,
  timestamp: `${firstMs + number}`,
  headers: { number: `${number}` },
})

const send = async (numbers, settings) => {
  const producer = kafka.producer({
    createPartitioner: Partitioners.DefaultPartitioner,
    idempotent,
    allowAutoTopicCreation: false,
    ...settings,
  })
  await producer.connect()
  const compression = codec === 'gzip' ? CompressionTypes.GZIP : CompressionTypes.None
  const answers = []
  for (let from = 0; from < numbers.length; from += 100) {
    const messages = numbers.slice(from, from + 100).map(message)
    const sent = await producer.send({ topic, messages, compression, acks: -1 })
    answers.push(...sent.map(({ partition, baseOffset }) => [from, partition, Number(baseOffset)]))
  }
  await producer.disconnect()
  return answers
}

const transactional = () => kafka.producer({
  idempotent: true, transactionalId: id, maxInFlightRequests: 1, transactionTimeout: 10000,
  retry: { retries: 20 },
})

const commands = {
  // Of what is sent at once, the first offset in each partition is known.
  async produce () {
    say({ batches: await send([...Array(count).keys()]) })
  },

  // A member of a group until stdin ends.
  async group () {
    const consumer = kafka.consumer({
      groupId,
      allowAutoTopicCreation: false,
      maxWaitTimeInMs: 100,
      heartbeatInterval: 500,
    })
    consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
      say({ assigned: (payload.memberAssignment[topic] || []).sort() })
    })
    consumer.on(consumer.events.CRASH, ({ payload }) => {
      process.stderr.write(`${payload.error.stack}\n`)
    })
    await consumer.connect()
    await consumer.subscribe({ topics: [topic], fromBeginning: true })
    await consumer.run({
      autoCommitInterval: 100,
      eachMessage: async ({ partition, message }) => {
        const headers = Object.fromEntries(
          Object.entries(message.headers).map(([name, value]) => [name, value.toString()]))
        say({
          record: [partition, Number(message.offset), message.key.toString(), message.value.toString(),
            Number(message.timestamp), headers],
        })
      },
    })
    process.stdin.resume()
    await new Promise(resolve => process.stdin.once('end', resolve))
    await consumer.disconnect()
    say({ left: true })
  },

  async admin () {
    const found = {}
    const admin = kafka.admin()
    await admin.connect()
    const wanted = {
      topic, numPartitions: 2, configEntries: [{ name: 'retention.ms', value: '60000' }],
    }
    found.createTopics = [
      await admin.createTopics({ topics: [wanted], waitForLeaders: true }),
      await admin.createTopics({ topics: [wanted] }), // false: it is there
    ]
    found.listTopics = (await admin.listTopics()).includes(topic)
    await admin.createPartitions({ topicPartitions: [{ topic, count: 3 }] })
    const { topics: [metadata] } = await admin.fetchTopicMetadata({ topics: [topic] })
    found.fetchTopicMetadata = metadata.partitions.map(one => one.partitionId).sort()
    const { brokers, clusterId } = await admin.describeCluster()
    found.describeCluster = [brokers.length, clusterId !== '']
    const resource = { type: ConfigResourceTypes.TOPIC, name: topic }
    await admin.alterConfigs({
      validateOnly: false,
      resources: [{ ...resource, configEntries: [{ name: 'retention.ms', value: '3600000' }] }],
    })
    const { resources } = await admin.describeConfigs({
      includeSynonyms: false, resources: [{ ...resource, configNames: ['retention.ms'] }],
    })
    found.describeConfigs = resources[0].configEntries.map(one => [one.configName, one.configValue])

    await send([...Array(10).keys()], { createPartitioner: () => () => 0 })
    const ends = await admin.fetchTopicOffsets(topic)
    found.fetchTopicOffsets = ends.map(one => [one.partition, one.low, one.high]).sort()
    const later = await admin.fetchTopicOffsetsByTimestamp(topic, firstMs + 3)
    found.fetchTopicOffsetsByTimestamp = later.find(one => one.partition === 0).offset
    await admin.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: '4' }] })
    found.deleteTopicRecords = (await admin.fetchTopicOffsets(topic))
      .find(one => one.partition === 0).low

    await admin.setOffsets({ groupId, topic, partitions: [{ partition: 0, offset: '7' }] })
    const committed = async () => (await admin.fetchOffsets({ groupId, topics: [topic] }))[0]
      .partitions.map(one => [one.partition, one.offset]).sort()
    found.setOffsets = await committed()
    await admin.resetOffsets({ groupId, topic, earliest: true })
    found.resetOffsets = (await committed())[0]
    const listed = async () => (await admin.listGroups()).groups.some(one => one.groupId === groupId)
    found.listGroups = await listed()
    const { groups: [described] } = await admin.describeGroups([groupId])
    found.describeGroups = [described.state, described.protocolType]
    await admin.deleteGroups([groupId])
    found.deleteGroups = await listed()
    found.listPartitionReassignments = (await admin.listPartitionReassignments({})).topics
    await admin.deleteTopics({ topics: [topic] })
    found.deleteTopics = (await admin.listTopics()).includes(topic)
    await admin.disconnect()
    say(found)
  },

  // Moves records of one topic to the same partitions of another one, exactly once, until stdin ends.
  async copy () {
    const producer = transactional()
    await producer.connect()
    const consumer = kafka.consumer({
      groupId, readUncommitted: false, allowAutoTopicCreation: false, maxWaitTimeInMs: 100,
      sessionTimeout: 6000, heartbeatInterval: 500, rebalanceTimeout: 6000,
    })
    consumer.on(consumer.events.CRASH, ({ payload }) => {
      process.stderr.write(`${payload.error.stack}\n`)
    })
    await consumer.connect()
    await consumer.subscribe({ topics: [topic], fromBeginning: true })
    let number = 0
    await consumer.run({
      autoCommit: false,
      eachBatchAutoResolve: false,
      eachBatch: async ({ batch: { partition, messages }, resolveOffset, heartbeat, isRunning, isStale }) => {
        for (let from = 0; from < messages.length && isRunning() && !isStale();) {
          const taken = messages.slice(from, from + size)
          const last = taken[taken.length - 1].offset
          const transaction = await producer.transaction()
          await transaction.send({
            topic: output, messages: taken.map(({ key, value }) => ({ key, value, partition })),
          })
          const offset = (BigInt(last) + 1n).toString()
          await transaction.sendOffsets({
            consumerGroupId: groupId, topics: [{ topic, partitions: [{ partition, offset }] }],
          })
          if (++number % abortEvery === 0) {
            await transaction.abort()
            say({ aborted: taken.length })
          } else {
            await transaction.commit()
            say({ committed: taken.length })
            resolveOffset(last)
            from += taken.length
          }
          await heartbeat()
        }
      },
    })
    process.stdin.resume()
    await new Promise(resolve => process.stdin.once('end', resolve))
    await consumer.disconnect()
    await producer.disconnect()
    say({ left: true })
  },
}

commands[command]().catch(error => {
  process.stderr.write(`${error.stack}\n`)
  process.exit(1)
})
