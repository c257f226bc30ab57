'use strict';

// Scenarios for ali-ons, several at a time in one process.
//
// Arguments: name servers with ';' between, prefix of topics that exist (numbered from 0), file for the
// results, part of the names to run.

const fs = require('fs');
const { Consumer, Producer, Message } = require('ali-ons');
const httpclient = { request: () => { throw new Error('no HTTP is needed'); } };

const [ servers, prefix, file, part ] = process.argv.slice(2);
const SECONDS_MAX = 100;
const quiet = { info() {}, warn() {}, error() {}, debug() {} };
const rows = [];
const add = (name, run) => rows.push({ name, run });
const sleep = millis => new Promise(resolve => setTimeout(resolve, millis));

let instances = 0;
const common = () => ({
  httpclient, nameSrv: servers.split(';'), logger: quiet, accessKeyId: 'key', accessKeySecret: 'secret',
  instanceName: `n${process.pid}_${instances++}`,
});

async function producer(s) {
  const made = new Producer({ ...common(), producerGroup: `P_${s.group}` });
  made.on('error', () => {});
  await made.ready();
  return made;
}

function message(topic, body, tags, properties) {
  const made = new Message(topic, tags || '', body);
  Object.assign(made.properties, properties || {});
  return made;
}

function taking(s, expression, options, handler) {
  const seen = [];
  const made = new Consumer({
    ...common(), consumerGroup: s.group, consumeFromWhere: 'CONSUME_FROM_FIRST_OFFSET', ...options,
  });
  made.on('error', () => {});
  made.subscribe(s.topic, expression, async one => {
    seen.push(one);
    return handler ? await handler(one) : undefined;
  });
  return { seen, made };
}

const bodies = seen => [ ...new Set(seen.map(one => one.body.toString())) ].sort();
const numbered = count => [ ...Array(count).keys() ].map(number => `body${number}`);

async function until(seconds, holds, otherwise) {
  const deadline = Date.now() + seconds * 1000;
  while (!holds()) {
    if (Date.now() > deadline) throw new Error(`after ${seconds} s: ${otherwise()}`);
    await sleep(50);
  }
}

function equal(expected, actual, what) {
  const [ one, two ] = [ JSON.stringify(expected), JSON.stringify(actual) ];
  if (one !== two) throw new Error(`${what}: ${two}, expected ${one}`);
}

async function awaited(seen, expected) {
  await until(60, () => bodies(seen).length >= expected.length, () => `seen ${bodies(seen)}`);
  await sleep(300);
  equal([ ...expected ].sort(), bodies(seen), 'bodies');
}

async function send(made, topic, count) {
  for (const body of numbered(count)) {
    const result = await made.send(message(topic, body, 'A'));
    equal('SEND_OK', result.sendStatus, 'status');
  }
}

add('send', async s => {
  const made = await producer(s);
  const result = await made.send(message(s.topic, 'one', 'A'));
  equal('SEND_OK', result.sendStatus, 'status');
  equal(32, result.msgId.length, 'length of the id');
  equal(s.topic, result.messageQueue.topic, 'topic');
});
add('send to a topic that is not there fails', async s => {
  const made = await producer(s);
  try {
    await made.send(message(`None_${prefix}`, 'one'));
  } catch (error) {
    return;
  }
  throw new Error('was taken');
});
add('push', async s => {
  const { seen } = taking(s, '*');
  await send(await producer(s), s.topic, 10);
  await awaited(seen, numbered(10));
});
add('push with tags', async s => {
  const made = await producer(s);
  for (const tag of [ 'A', 'B', 'C' ]) await made.send(message(s.topic, tag, tag));
  await awaited(taking(s, 'A || C').seen, [ 'A', 'C' ]);
});
add('push with SQL92', async s => {
  const made = await producer(s);
  for (const number of [ 0, 1, 2, 3 ]) await made.send(message(s.topic, `body${number}`, '', { a: `${number}` }));
  await awaited(taking(s, { expressionType: 'SQL92', subString: 'a > 1' }).seen, [ 'body2', 'body3' ]);
});
add('properties, keys and tags arrive', async s => {
  const made = await producer(s);
  const sent = message(s.topic, 'one', 'Tag', { color: 'blue' });
  sent.keys = [ 'k1' ];
  await made.send(sent);
  const { seen } = taking(s, '*');
  await awaited(seen, [ 'one' ]);
  equal([ 'Tag', 'k1', 'blue' ], [ seen[0].tags, seen[0].keys, seen[0].properties.color ], 'properties');
});
add('compressed body', async s => {
  const made = await producer(s);
  const body = 'compressible '.repeat(10000);
  await made.send(message(s.topic, body));
  await awaited(taking(s, '*').seen, [ body ]);
});
add('delay level', async s => {
  const made = await producer(s);
  const { seen } = taking(s, '*');
  const late = message(s.topic, 'late');
  late.delayTimeLevel = 2;
  const begun = Date.now();
  await made.send(late);
  await awaited(seen, [ 'late' ]);
  const took = Date.now() - begun;
  if (took < 4500 || took > 14000) throw new Error(`came after ${took} ms`);
});
add('retry, then success', async s => {
  await send(await producer(s), s.topic, 1);
  let times = 0;
  const { seen } = taking(s, '*', {}, async () => {
    if (times++ === 0) throw new Error('the first time');
  });
  await until(90, () => seen.length >= 2, () => `${seen.length} deliveries`);
  equal(1, seen[1].reconsumeTimes, 'times');
});
add('two consumers share the queues', async s => {
  const one = taking(s, '*');
  const two = taking(s, '*');
  await sleep(15000);
  await send(await producer(s), s.topic, 20);
  await until(60, () => one.seen.length && two.seen.length && one.seen.length + two.seen.length >= 20,
    () => `${one.seen.length} and ${two.seen.length}`);
});
add('consumer goes on where its group was', async s => {
  const made = await producer(s);
  await send(made, s.topic, 4);
  const first = taking(s, '*');
  await awaited(first.seen, numbered(4));
  await sleep(6000);  // offsets are kept every 5 s
  await first.made.close();
  await made.send(message(s.topic, 'later'));
  await awaited(taking(s, '*').seen, [ 'later' ]);
});
add('broadcast', async s => {
  const [ one, two ] = [ taking(s, '*', { isBroadcast: true }), taking(s, '*', { isBroadcast: true }) ];
  await sleep(3000);
  await send(await producer(s), s.topic, 4);
  await awaited(one.seen, numbered(4));
  await awaited(two.seen, numbered(4));
});

async function run(row, number) {
  const s = { topic: `${prefix}_${number}`, group: `G_${prefix}_${number}` };
  const begun = Date.now();
  const late = new Promise((_, reject) => {
    setTimeout(() => reject(new Error(`not done in ${SECONDS_MAX} s`)), SECONDS_MAX * 1000).unref();
  });
  let reason = '';
  try {
    await Promise.race([ row.run(s), late ]);
  } catch (error) {
    reason = String(error.message || error);
  }
  const line = { name: row.name, ok: !reason, seconds: (Date.now() - begun) / 1000, reason };
  fs.appendFileSync(file, JSON.stringify(line) + '\n');
}

process.on('unhandledRejection', () => {});
Promise.all(rows.map((row, number) => (row.name.includes(part) ? run(row, number) : undefined)))
  .then(() => process.exit(0));
