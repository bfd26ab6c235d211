// A producer and a consumer group in Node.js, with kafkajs: nothing in here is special to Penstock.
//
//     npm install && node events.js 127.0.0.1:9092
//
// Sends five messages to each of two topics, processes them as a member of a group, commits each one after it was
// processed, and ends.
'use strict';

const { Kafka, Partitioners, logLevel } = require('kafkajs');

const TOPICS = ['user-events', 'system-logs'];
const EACH = 5;

async function produce(kafka) {
  const producer = kafka.producer({ createPartitioner: Partitioners.DefaultPartitioner });
  await producer.connect();
  for (const topic of TOPICS) {
    const messages = Array.from({ length: EACH }, (_, i) => ({ key: `key-${i % 2}`, value: `${topic} ${i}` }));
    await producer.send({ topic, messages, acks: -1 });
  }
  await producer.disconnect();
}

async function consume(kafka, processMessage) {
  const consumer = kafka.consumer({
    groupId: 'my-consumer-group',
    sessionTimeout: 10000,
    heartbeatInterval: 3000,
  });
  await consumer.connect();
  await consumer.subscribe({ topics: TOPICS, fromBeginning: true });
  await new Promise((resolve, reject) => {
    let left = TOPICS.length * EACH;
    consumer.on(consumer.events.CRASH, ({ payload }) => reject(payload.error));
    consumer.run({
      autoCommit: false,
      eachMessage: async ({ topic, partition, message }) => {
        await processMessage(topic, partition, message);
        const next = (BigInt(message.offset) + 1n).toString();
        await consumer.commitOffsets([{ topic, partition, offset: next }]);
        left -= 1;
        if (left === 0) resolve();
      },
    });
  });
  await consumer.disconnect();
}

async function main(bootstrap) {
  const kafka = new Kafka({ clientId: 'node-example', brokers: [bootstrap], logLevel: logLevel.WARN });
  const admin = kafka.admin();
  await admin.connect();
  await admin.createTopics({ topics: TOPICS.map((topic) => ({ topic, numPartitions: 2 })) });
  await admin.disconnect();
  await produce(kafka);
  await consume(kafka, async (topic, partition, message) => {
    console.log(`${topic}-${partition} ${message.key} ${message.value}`);
  });
}

main(process.argv[2] || '127.0.0.1:9092').catch((error) => {
  console.error(error);
  process.exit(1);
});
