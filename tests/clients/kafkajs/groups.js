// What client.js does with groups and transactions. KafkaJS has no other way to read than as a member of a group.
'use strict'

const PARTITIONS = 4
const PATIENCE_MS = 60000

// Resolves when `happened()` is true, which is asked whenever `changed` is called.
class Until {
  constructor(happened) {
    this.happened = happened
    this.promise = new Promise((resolve, reject) => {
      this.resolve = resolve
      this.timer = setTimeout(() => reject(new Error(`not in time: ${happened}`)), PATIENCE_MS)
    })
    this.changed()
  }

  changed() {
    if (this.happened()) {
      clearTimeout(this.timer)
      this.resolve()
    }
  }
}

// A consumer, what it has been assigned and what it has read.
class Member {
  constructor(kafka, topic, groupId) {
    this.topic = topic
    this.partitions = null
    this.values = []
    this.waiting = []
    this.consumer = kafka.consumer({
      groupId, sessionTimeout: 10000, heartbeatInterval: 100, maxWaitTimeInMs: 50, readUncommitted: false })
    this.consumer.on(this.consumer.events.REBALANCING, () => { this.partitions = null })
    this.consumer.on(this.consumer.events.GROUP_JOIN, ({ payload }) => {
      this.partitions = payload.memberAssignment[topic] || []
      this.changed()
    })
  }

  async start(each = async () => {}, options = {}) {
    await this.consumer.connect()
    await this.consumer.subscribe({ topics: [this.topic], fromBeginning: true })
    await this.consumer.run({
      ...options,
      eachMessage: async ({ partition, message }) => {
        this.values.push(message.value.toString())
        await each(partition, message)
        this.changed()
      },
    })
    return this
  }

  changed() {
    this.waiting.forEach((each) => each.changed())
  }

  has(count) { // records
    return this.until(() => this.values.length >= count)
  }

  owns(count) { // partitions
    return this.until(() => this.partitions !== null && this.partitions.length === count)
  }

  until(happened) {
    const until = new Until(happened)
    this.waiting.push(until)
    return until.promise
  }

  stop() {
    return this.consumer.disconnect()
  }
}

const numbers = (values) => values.map(Number).sort((a, b) => a - b)

async function filled({ kafka, kafkajs, topic }) {
  const admin = kafka.admin()
  await admin.connect()
  await admin.createTopics({ topics: [{ topic, numPartitions: PARTITIONS }] })
  const producer = kafka.producer({ createPartitioner: kafkajs.Partitioners.DefaultPartitioner })
  await producer.connect()
  const record = (number) => ({ value: String(number), partition: number % PARTITIONS })
  const send = (from, to) => producer.send({
    topic, messages: [...Array(to - from).keys()].map((i) => record(from + i)) })
  await send(0, 40)
  return { admin, send, end: () => Promise.all([admin.disconnect(), producer.disconnect()]) }
}

async function offsets(admin, topic, groupId) {
  const [found] = await admin.fetchOffsets({ groupId, topics: [topic] })
  return found.partitions.sort((a, b) => a.partition - b.partition).map((each) => [each.offset, each.metadata])
}

// A group reads and commits by hand; a second life of it goes on from there; it is described and deleted.
async function commits(given) {
  const { kafka, topic } = given
  const { admin, send, end } = await filled(given)
  const groupId = `${topic}-group`
  const said = {}
  const first = new Member(kafka, topic, groupId)
  await first.start((partition, message) => first.consumer.commitOffsets(
    [{ topic, partition, offset: String(Number(message.offset) + 1), metadata: 'by hand' }]), { autoCommit: false })
  await first.has(40)
  const described = (await admin.describeGroups([groupId])).groups[0]
  said.described = [described.state, described.protocolType, described.protocol, described.members.length]
  said.listed = (await admin.listGroups()).groups.some((each) => each.groupId === groupId)
  await first.stop()
  said.first = numbers(first.values)
  said.committed = await offsets(admin, topic, groupId)
  await send(40, 48)
  const second = await new Member(kafka, topic, groupId).start()
  await second.has(8)
  await second.stop() // with its own commit
  said.second = numbers(second.values)
  said.after = (await offsets(admin, topic, groupId)).map(([offset]) => offset)
  await admin.deleteGroups([groupId])
  said.left = (await admin.listGroups()).groups.some((each) => each.groupId === groupId)
  await end()
  return said
}

// Two members share the partitions; when one goes the other has them all. Nothing is read twice.
async function rebalance(given) {
  const { kafka, topic } = given
  const { send, end } = await filled(given)
  const groupId = `${topic}-group`
  const join = () => new Member(kafka, topic, groupId).start(undefined, { autoCommitThreshold: 1 })
  const one = await join()
  await one.has(40)
  const two = await join()
  await Promise.all([one.owns(2), two.owns(2)])
  const shares = [...one.partitions, ...two.partitions].sort()
  await send(40, 80)
  await Promise.all([one.has(60), two.has(20)])
  await one.stop()
  await two.owns(4)
  await send(80, 120)
  await two.has(60)
  await two.stop()
  await end()
  return { shares, read: numbers([...one.values, ...two.values]) }
}

// Committed, aborted, with a group's offsets, and fenced by a second producer of the same name.
async function transactions(given) {
  const { kafka, kafkajs, topic, refused } = given
  const { admin, end } = await filled(given)
  const groupId = `${topic}-group`
  const target = `${topic}-out`
  await admin.createTopics({ topics: [{ topic: target, numPartitions: PARTITIONS }] })
  const open = async () => {
    const producer = kafka.producer({
      createPartitioner: kafkajs.Partitioners.DefaultPartitioner,
      transactionalId: topic, maxInFlightRequests: 1, idempotent: true })
    await producer.connect()
    return producer
  }
  const producer = await open()
  for (let i = 0; i < 6; i++) {
    const transaction = await producer.transaction()
    for (let partition = 0; partition < 2; partition++) {
      await transaction.send({ topic: target, messages: [{ value: String(10 * i + partition), partition }] })
    }
    const position = { topic, partitions: [{ partition: 0, offset: String(i) }] }
    await transaction.sendOffsets({ consumerGroupId: groupId, topics: [position] })
    await (i % 2 ? transaction.abort() : transaction.commit())
  }
  const said = { position: (await offsets(admin, topic, groupId)).map(([offset]) => offset) }
  const late = await producer.transaction()
  await late.send({ topic: target, messages: [{ value: '98', partition: 0 }] })
  const successor = await open()
  const transaction = await successor.transaction()
  await transaction.send({ topic: target, messages: [{ value: '99', partition: 0 }] })
  await transaction.commit()
  said.fenced = await refused(late.commit())
  const reader = await new Member(kafka, target, `${groupId}-reader`).start()
  await reader.until(() => reader.values.includes('99') && reader.values.length >= 7)
  await Promise.all([reader.stop(), producer.disconnect(), successor.disconnect(), end()])
  return { ...said, read: numbers(reader.values) }
}

module.exports = { commits, rebalance, transactions }
