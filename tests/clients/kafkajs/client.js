// KafkaJS against a broker: `node client.js FOLDER BOOTSTRAP TOPIC VERB`, with KafkaJS in FOLDER/node_modules; the verbs
// are below. It prints what it was told, as one JSON object; the test compares. An error ends it with 1.
'use strict'

const { createRequire } = require('node:module')
const path = require('node:path')

const [folder, bootstrap, topic, verb] = process.argv.slice(2)
const kafkajs = createRequire(path.join(folder, 'package.json'))('kafkajs')
const { CompressionTypes, ConfigResourceTypes, Kafka, Partitioners, logLevel } = kafkajs
const kafka = new Kafka({ clientId: 'klamm-test', brokers: [bootstrap], logLevel: logLevel.ERROR, retry: { retries: 3 } })

const sorted = (rows, field) => [...rows].sort((a, b) => a[field] - b[field])

async function refused(promise) {
  try {
    await promise
    return null
  } catch (error) {
    return error.type || (error.errors || []).map((each) => each.type).join() || String(error)
  }
}

async function produce() {
  const producer = kafka.producer({ createPartitioner: Partitioners.DefaultPartitioner, idempotent: true })
  await producer.connect()
  const messages = (codec) => [...Array(100).keys()].map((i) => (
    { key: `k${i}`, value: `${codec} ${i}`, headers: { h: String(i) }, partition: 0, timestamp: String(1700000000000 + i) }))
  const plain = await producer.send({ topic, acks: -1, messages: messages('none') })
  const gzip = await producer.send({ topic, acks: -1, compression: CompressionTypes.GZIP, messages: messages('gzip') })
  await producer.disconnect()
  return { offsets: [plain, gzip].map(([answer]) => answer.baseOffset) }
}

async function administer() {
  const admin = kafka.admin()
  await admin.connect()
  const topics = [{ topic, numPartitions: 2, configEntries: [{ name: 'retention.ms', value: '60000' }] }]
  const said = { created: await admin.createTopics({ topics }), again: await admin.createTopics({ topics }) }
  await admin.createPartitions({ topicPartitions: [{ topic, count: 3 }] })
  said.listed = (await admin.listTopics()).includes(topic)
  const metadata = await admin.fetchTopicMetadata({ topics: [topic] })
  said.partitions = sorted(metadata.topics[0].partitions, 'partitionId').map((p) => [p.partitionId, p.leader])
  const cluster = await admin.describeCluster()
  said.cluster = { brokers: cluster.brokers.length, controller: cluster.controller, named: cluster.clusterId !== '' }
  const resource = { type: ConfigResourceTypes.TOPIC, name: topic }
  const entry = { name: 'max.message.bytes', value: '5000' }
  await admin.alterConfigs({ validateOnly: false, resources: [{ ...resource, configEntries: [entry] }] })
  const configs = await admin.describeConfigs({ includeSynonyms: true, resources: [resource] })
  const found = new Map(configs.resources[0].configEntries.map((each) => [each.configName, each.configValue]))
  said.configs = ['max.message.bytes', 'retention.ms'].map((name) => found.get(name)) // AlterConfigs sets all anew
  const wrong = { name: 'no.such.option', value: '1' }
  said.refused = await refused(
    admin.alterConfigs({ validateOnly: true, resources: [{ ...resource, configEntries: [wrong] }] }))
  const producer = kafka.producer({ createPartitioner: Partitioners.DefaultPartitioner })
  await producer.connect()
  await producer.send({ topic, messages: [...Array(10).keys()].map((i) => ({ value: String(i), partition: 1 })) })
  await producer.disconnect()
  await admin.deleteTopicRecords({ topic, partitions: [{ partition: 1, offset: '4' }] })
  said.offsets = sorted(await admin.fetchTopicOffsets(topic), 'partition').map((p) => [p.low, p.high])
  said.acls = await acls(admin)
  said.moving = (await admin.listPartitionReassignments({ topics: [{ topic, partitions: [0] }] })).topics
  await admin.deleteTopics({ topics: [topic] })
  said.left = (await admin.listTopics()).includes(topic)
  await admin.disconnect()
  return said
}

async function acls(admin) {
  const { AclOperationTypes, AclPermissionTypes, AclResourceTypes, ResourcePatternTypes } = kafkajs
  const rule = {
    resourceType: AclResourceTypes.TOPIC, resourceName: topic, resourcePatternType: ResourcePatternTypes.LITERAL,
    principal: 'User:js', host: '*', operation: AclOperationTypes.READ, permissionType: AclPermissionTypes.ALLOW,
  }
  await admin.createAcls({ acl: [rule] })
  const described = await admin.describeAcls(rule)
  const removed = await admin.deleteAcls({ filters: [rule] })
  return [described.resources.length, removed.filterResponses[0].matchingAcls.length]
}

const run = { produce, admin: administer, ...require('./groups') }[verb]
run({ kafka, kafkajs, topic, refused }).then((said) => console.log(JSON.stringify(said))).catch((error) => {
  console.error(error)
  process.exitCode = 1
})
