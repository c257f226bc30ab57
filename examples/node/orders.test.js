// RocketMQ's client for Node.js at a cluster whose master is killed.
'use strict';

const assert = require('node:assert');
const { after, before, test } = require('node:test');
const { setTimeout: sleep } = require('node:timers/promises');
const { Producer, SimpleConsumer, FilterExpression } = require('rocketmq-client-nodejs');
const { TandemCluster } = require('./tandem-cluster.js');

const ORDERS = 30;
const PATIENCE_MS = 150_000;
const quiet = { info() {}, warn() {}, error() {}, debug() {}, close() {} };

let cluster;

before(async () => {
  cluster = await TandemCluster.start(
    '--topic', 'Orders', '--settings', '{"broker": {"grpc_enable": true}}');
});
after(async () => cluster.end());

function client(more) {
  return {
    endpoints: cluster.nameServers, namespace: '', sslEnabled: false, logger: quiet,
    requestTimeout: 3_000, ...more,
  };
}

async function sendUntilItIsSafe(producer, body) {
  const end = Date.now() + PATIENCE_MS;
  for (;;) {
    try {
      await producer.send({ topic: 'Orders', body: Buffer.from(body) });
      return;
    } catch (error) {
      if (Date.now() > end) {
        throw error;
      }
      await sleep(50); // another master is being elected
    }
  }
}

// A group that is new begins at the end of a topic: so it looks there before the first order.
async function startedConsumer() {
  const consumer = new SimpleConsumer(client({
    consumerGroup: 'billing', awaitDuration: 1_000,
    subscriptions: new Map([['Orders', new FilterExpression('*')]]),
  }));
  await consumer.startup();
  assert.deepStrictEqual(await consumer.receive(1, 30_000), []);
  return consumer;
}

async function consumed(consumer, count) {
  const seen = new Set();
  const end = Date.now() + PATIENCE_MS;
  while (seen.size < count && Date.now() < end) {
    try {
      for (const message of await consumer.receive(16, 30_000)) {
        seen.add(message.body.toString());
        await consumer.ack(message);
      }
    } catch {
      await sleep(50); // it asks again, and another node
    }
  }
  return seen;
}

test('every order is consumed although the master is killed', async () => {
  const consumer = await startedConsumer();
  const producer = new Producer(client({ topics: ['Orders'] }));
  await producer.startup();
  let killed = '';
  for (let number = 0; number < ORDERS; number++) {
    if (number === ORDERS / 3) {
      killed = await cluster.killMaster();
    }
    await sendUntilItIsSafe(producer, `order ${number}`);
  }
  await producer.shutdown();
  assert.notStrictEqual(await cluster.waitForMaster(killed), killed);
  assert.strictEqual((await consumed(consumer, ORDERS)).size, ORDERS);
  await consumer.shutdown();
});

test('an order that makes no sense is refused and the cluster lives on', async () => {
  await assert.rejects(cluster.kill('broker-a-7'), { code: 'unknown_node' });
  assert.notStrictEqual(await cluster.waitForMaster(), '');
});
