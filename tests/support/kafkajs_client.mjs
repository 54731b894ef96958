/*
 * kafkajs as a process that prints what happens as JSON lines, as tests/support/java/JavaClient.java does.
 *
 *     kafkajs_client.mjs MODULES member BOOTSTRAP GROUP TOPIC
 *     kafkajs_client.mjs MODULES produce BOOTSTRAP TOPIC FIRST COUNT
 *     kafkajs_client.mjs MODULES seek BOOTSTRAP TOPIC
 *     kafkajs_client.mjs MODULES copy BOOTSTRAP GROUP SOURCE TARGET ID
 *
 * MODULES is the directory in which kafkajs is installed.
 */

import { createRequire } from "node:module";

const [modules, mode, bootstrap, ...rest] = process.argv.slice(2);
const { Kafka, logLevel } = createRequire(`${modules}/`)("kafkajs");
const kafka = new Kafka({ brokers: bootstrap.split(","), logLevel: logLevel.ERROR, retry: { retries: 20 } });

const UNCERTAIN = 4; // a commit failed: kafkajs cannot say how the transaction ended, and has to start anew

function say(event, values) {
  process.stdout.write(JSON.stringify({ event, ...values }) + "\n");
}

function nextOffset(batch) {
  return (BigInt(batch.lastOffset()) + 1n).toString();
}

async function consume(group, topic, eachBatch) {
  const consumer = kafka.consumer({
    groupId: group,
    sessionTimeout: 6000,
    heartbeatInterval: 500,
    maxWaitTimeInMs: 200,
    readUncommitted: false,
  });
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) =>
    say("assigned", { partitions: [...(payload.memberAssignment[topic] ?? [])].sort() }),
  );
  await consumer.connect();
  await consumer.subscribe({ topics: [topic], fromBeginning: true });
  await consumer.run({ autoCommit: false, eachBatch: ({ batch }) => eachBatch(consumer, batch) });
}

async function member(group, topic) {
  await consume(group, topic, async (consumer, batch) => {
    await consumer.commitOffsets([{ topic, partition: batch.partition, offset: nextOffset(batch) }]);
    for (const { offset, value } of batch.messages) {
      say("committed", { partition: batch.partition, offset: Number(offset), value: value.toString() });
    }
  });
}

async function produce(topic, first, count) {
  const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1 });
  await producer.connect();
  const values = Array.from({ length: Number(count) }, (_, index) => String(Number(first) + index));
  await producer.send({ topic, acks: -1, messages: values.map((value) => ({ key: value, value })) });
  values.forEach((value) => say("produced", { value }));
  await producer.disconnect();
}

/* From the second record, from the end less one, from the beginning, and from the time of the third record. */
async function seek(topic) {
  const admin = kafka.admin();
  await admin.connect();
  const ofFirst = (found) => found.find(({ partition }) => partition === 0); // they come in the order of the leaders
  const { low, high } = ofFirst(await admin.fetchTopicOffsets(topic));
  const { offset } = ofFirst(await admin.fetchTopicOffsetsByTimestamp(topic, 3000));
  await admin.disconnect();
  const positions = [
    ["offset", "1"],
    ["end", String(Number(high) - 1)],
    ["beginning", low],
    ["time", offset],
  ];
  const consumer = kafka.consumer({ groupId: `seek-${topic}`, maxWaitTimeInMs: 200 });
  await consumer.connect();
  await consumer.subscribe({ topics: [topic], fromBeginning: true });
  const seekToNext = () => consumer.seek({ topic, partition: 0, offset: positions[0][1] });
  await consumer.run({
    autoCommit: false,
    eachBatchAutoResolve: false,
    eachBatch: async ({ batch, isStale }) => {
      const [message] = batch.messages;
      if (isStale() || batch.partition !== 0 || message.offset !== positions[0][1]) {
        return;
      }
      say(positions.shift()[0], { offset: Number(message.offset), value: message.value.toString() });
      if (positions.length === 0) {
        process.exit(0);
      }
      seekToNext();
    },
  });
  seekToNext();
}

async function copy(group, source, target, id) {
  const producer = kafka.producer({
    transactionalId: id,
    idempotent: true,
    maxInFlightRequests: 1,
    transactionTimeout: 20000,
  });
  await producer.connect();
  await consume(group, source, async (consumer, batch) => {
    const transaction = await producer.transaction();
    try {
      const { partition } = batch;
      const messages = batch.messages.map(({ key, value }) => ({ key, value, partition }));
      await transaction.send({ topic: target, messages });
      const offsets = [{ topic: source, partitions: [{ partition, offset: nextOffset(batch) }] }];
      await transaction.sendOffsets({ consumerGroupId: group, topics: offsets });
      await transaction.commit();
      say("copied", { records: messages.length });
    } catch (error) {
      say("aborted", { error: String(error) });
      await transaction.abort().catch(() => process.exit(UNCERTAIN));
      throw error; // the batch is read again
    }
  });
}

await { member, produce, seek, copy }[mode](...rest);
