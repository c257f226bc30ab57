// TandemMQ clusters for tests: Linux, and `pip install tandem-mq`. Copy this file; it needs Node alone.
//
//     const cluster = await TandemCluster.start('--topic', 'Orders');
//     cluster.nameServers            // "127.4.17.201:10911;...", also the endpoints of gRPC clients
//     await cluster.killMaster();
//     await cluster.end();
//
// A cluster is a process of `tandem testing serve`, which ends with this process, however that ends.
// The program is `tandem`, or what TANDEM_COMMAND names. A promise is rejected with an Error that
// has a `code` if the cluster cannot do what was asked.
'use strict';

const { once } = require('node:events');
const { spawn } = require('node:child_process');
const readline = require('node:readline');

class TandemCluster {
  #process;
  #waiting = [];

  constructor(options) {
    const [program, ...words] = (process.env.TANDEM_COMMAND || 'tandem').split(' ');
    this.#process = spawn(program, [...words, 'testing', 'serve', ...options], {
      stdio: ['pipe', 'pipe', 'inherit'],
    });
    this.#process.on('error', (error) => this.#gone(error));
    this.#process.stdin.on('error', (error) => this.#gone(error));
    const lines = readline.createInterface({ input: this.#process.stdout });
    lines.on('line', (line) => this.#take(JSON.parse(line)));
    lines.on('close', () => this.#gone(new Error('the cluster has ended')));
  }

  // Options are those of `tandem testing serve`; without any it is a fenced group of three nodes.
  static async start(...options) {
    const cluster = new TandemCluster(options);
    const { ready } = await cluster.#answer();
    return Object.assign(cluster, {
      nameServers: ready.name_servers,
      nodes: ready.nodes,
      clusterFile: ready.cluster_file,
    });
  }

  // Gives any order; resolves to its result.
  async order(name, args = {}) {
    const answer = this.#answer();
    this.#process.stdin.write(JSON.stringify({ [name]: args }) + '\n');
    return (await answer).result;
  }

  async newTopic() { return (await this.order('topic')).topic; }
  async master() { return (await this.order('master')).node; }
  async killMaster() { return (await this.order('kill_master')).node; }
  async waitForMaster(otherThan = '') {
    return (await this.order('wait_for_master', { other_than: otherThan })).node;
  }
  async kill(node) { await this.order('kill', { node }); }
  async start(node) { await this.order('start', { node }); }
  async restart(node) { await this.order('restart', { node }); }
  async freeze(node) { await this.order('freeze', { node }); }
  async thaw(node) { await this.order('thaw', { node }); }
  async partition(...nodes) { await this.order('partition', { nodes }); }
  async recover() { await this.order('recover'); }

  async end() {
    if (this.#process.exitCode === null && this.#process.signalCode === null) {
      this.#process.stdin.end();
      await once(this.#process, 'exit');
    }
  }

  #answer() {
    return new Promise((resolve, reject) => this.#waiting.push({ resolve, reject }));
  }

  #take(line) {
    const { resolve, reject } = this.#waiting.shift();
    if (line.error) {
      reject(Object.assign(new Error(line.error.text), { code: line.error.code }));
    } else {
      resolve(line);
    }
  }

  #gone(error) {
    for (const { reject } of this.#waiting.splice(0)) {
      reject(error);
    }
  }
}

module.exports = { TandemCluster };
