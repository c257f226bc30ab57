// An application with RocketMQ's rocketmq-client-nodejs that does what it is asked to: the orders of
// python/agent.py.
'use strict';

const readline = require('node:readline');
const {
  ConsumeResult, FilterExpression, Producer, PushConsumer, SimpleConsumer,
} = require('rocketmq-client-nodejs');
const { FilterType, TransactionResolution } =
  require('rocketmq-client-nodejs/proto/apache/rocketmq/v2/definition_pb');

const { tls } = JSON.parse(process.argv[2]);
const clients = new Map();
const received = [];
const halves = [];
const quiet = { info() {}, warn() {}, error(...words) { console.error(...words); }, debug() {}, close() {} };

function say(line) {
  process.stdout.write(JSON.stringify(line) + '\n');
}

function configuration(order) {
  return {
    endpoints: order.endpoints,
    namespace: '',
    sslEnabled: tls,
    logger: quiet,
    requestTimeout: (order.timeout_s || 3) * 1000,
    ...(order.keys ? { sessionCredentials: { accessKey: order.keys[0], accessSecret: order.keys[1] } } : {}),
  };
}

function filters(order) {
  const expression = order.sql
    ? new FilterExpression(order.sql, FilterType.SQL) : new FilterExpression(order.tags || '*');
  return new Map([[order.topic, expression]]);
}

function messageOf(given) {
  return {
    topic: given.topic,
    body: Buffer.from(given.body.repeat(given.times || 1)),
    ...(given.tag ? { tag: given.tag } : {}),
    ...(given.keys ? { keys: given.keys } : {}),
    ...(given.properties ? { properties: new Map(Object.entries(given.properties)) } : {}),
    ...(given.group ? { messageGroup: given.group } : {}),
    ...(given.deliver_at_ms ? { deliveryTimestamp: new Date(given.deliver_at_ms) } : {}),
  };
}

function shown(view) {
  return {
    message_id: view.messageId,
    topic: view.topic,
    body: view.body.subarray(0, 200).toString(),
    size: view.body.length,
    tag: view.tag || '',
    keys: [...view.keys].sort(),
    properties: Object.fromEntries(view.properties),
    group: view.messageGroup || '',
    attempt: view.deliveryAttempt || 0,
    handle: view.receiptHandle,
    at_ms: Date.now(),
  };
}

function listener(order) {
  const failures = new Map(Object.entries(order.failures || {}));
  const hold = order.hold_s || {};
  return {
    async consume(view) {
      const seen = shown(view);
      const left = failures.get(seen.body) || 0;
      failures.set(seen.body, left - 1);
      say({ event: 'message', name: order.name, ok: left <= 0, ...seen });
      await new Promise(done => setTimeout(done, (hold[seen.body] || 0) * 1000));
      return left > 0 ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
    },
  };
}

async function started(name, client) {
  await client.startup();
  clients.set(name, client);
  return {};
}

const operations = {
  producer: order => started(order.name, new Producer({
    ...configuration(order),
    topics: order.topics,
    topic: order.topics,
    ...(order.check ? {
      checker: {
        async check(view) {
          const body = view.body.toString();
          say({ event: 'check', name: order.name, body });
          return TransactionResolution[body.includes('rollback') ? 'ROLLBACK' : order.check.toUpperCase()];
        },
      },
    } : {}),
  })),
  async send(order) {
    const receipt = await clients.get(order.name).send(messageOf(order.message));
    return { message_id: receipt.messageId, recall_handle: receipt.recallHandle || '' };
  },
  async half(order) {
    const producer = clients.get(order.name);
    const transaction = producer.beginTransaction();
    const receipt = await producer.send(messageOf(order.message), transaction);
    return { message_id: receipt.messageId, half: halves.push(transaction) - 1 };
  },
  async end(order) {
    const transaction = halves[order.half];
    await (order.how === 'commit' ? transaction.commit() : transaction.rollback());
    return {};
  },
  async recall(order) {
    const receipt = await clients.get(order.name).recallMessage(order.topic, order.recall_handle);
    return { message_id: receipt.messageId };
  },
  simple: order => started(order.name, new SimpleConsumer({
    ...configuration(order),
    consumerGroup: order.group,
    subscriptions: filters(order),
    awaitDuration: (order.await_s || 5) * 1000,
  })),
  async receive(order) {
    const views = await clients.get(order.name).receive(order.max, order.invisible_s * 1000);
    return { messages: views.map(view => ({ ...shown(view), n: received.push(view) - 1 })) };
  },
  async ack(order) {
    await clients.get(order.name).ack(received[order.n]);
    return {};
  },
  async change(order) {
    await clients.get(order.name).changeInvisibleDuration(received[order.n], order.invisible_s * 1000);
    return { handle: received[order.n].receiptHandle };
  },
  push: order => started(order.name, new PushConsumer({
    ...configuration(order),
    consumerGroup: order.group,
    subscriptions: filters(order),
    messageListener: listener(order),
  })),
  async close(order) {
    const client = clients.get(order.name);
    clients.delete(order.name);
    await client.shutdown();
    return {};
  },
};

process.on('unhandledRejection', error => console.error('unhandled', error));
process.on('uncaughtException', error => console.error('uncaught', error));
say({ ready: true });
const lines = readline.createInterface({ input: process.stdin });
lines.on('line', text => {
  const order = JSON.parse(text);
  Promise.resolve()
    .then(() => operations[order.op](order))
    .then(result => say({ id: order.id, ...result }))
    .catch(error => say({ id: order.id, error: `${error.name}: ${error.message}` }));
});
lines.on('close', () => process.exit(0));
