// Drives beanstalkd over its text protocol, one connection a producer and a worker.
//
// A waiting `reserve` blocks its connection, so a worker needs one of its own whatever number of
// connections was asked for. Written on bare sockets: no client library stands in the peer's way.
'use strict';

const net = require('node:net');
const { run } = require('./lines.js');

const EOL = Buffer.from('\r\n');

/** One connection; commands are answered in order, so a list of resolvers is enough. */
class Connection {
  constructor(socket) {
    this.socket = socket;
    this.waiting = [];
    this.rest = null;
    socket.on('data', (chunk) => this.feed(chunk));
  }

  static async open(port) {
    const socket = net.connect({ host: '127.0.0.1', port, noDelay: true });
    await new Promise((resolve, reject) => {
      socket.once('connect', resolve);
      socket.once('error', reject);
    });
    socket.removeAllListeners('error');
    socket.on('error', () => {}); // closing while a reserve waits
    return new Connection(socket);
  }

  feed(chunk) {
    let data = this.rest === null ? chunk : Buffer.concat([this.rest, chunk]);
    for (;;) {
      const end = data.indexOf(EOL);
      if (end < 0) break;
      const line = data.toString('latin1', 0, end);
      let next = end + 2;
      if (line.startsWith('RESERVED ')) {
        next += Number(line.slice(line.lastIndexOf(' ') + 1)) + 2; // the body and its line end
        if (data.length < next) break;
      }
      data = data.subarray(next);
      this.waiting.shift()(line);
    }
    this.rest = data.length ? data : null;
  }

  command(bytes) {
    return new Promise((resolve) => {
      this.waiting.push(resolve);
      this.socket.write(bytes);
    });
  }

  async expect(bytes, word) {
    const line = await this.command(bytes);
    if (!line.startsWith(word)) throw new Error(`wanted ${word}, beanstalkd said ${line}`);
    return line;
  }
}

async function work(connection, meter) {
  while (!meter.isDrained()) {
    const line = await connection.expect('reserve\r\n', 'RESERVED');
    await connection.expect(`delete ${line.split(' ')[1]}\r\n`, 'DELETED');
    meter.complete();
  }
}

async function open(options) {
  const put = Buffer.concat([
    Buffer.from(`put 1024 0 300 ${options.payload_bytes}\r\n`), // priority, delay, seconds to run
    Buffer.alloc(options.payload_bytes, 'x'),
    EOL,
  ]);

  async function prepare(order) {
    const producers = [];
    const consumers = [];
    for (let i = 0; i < order.parties; i++) {
      if (order.phase !== 'drain') {
        const connection = await Connection.open(options.port);
        await connection.expect(`use ${order.queue}\r\n`, 'USING');
        producers.push(connection);
      }
      if (order.phase !== 'enqueue') {
        const connection = await Connection.open(options.port);
        await connection.expect(`watch ${order.queue}\r\n`, 'WATCHING');
        await connection.expect('ignore default\r\n', 'WATCHING');
        consumers.push(connection);
      }
    }
    return {
      enqueueOne: (party) => producers[party].expect(put, 'INSERTED'),
      async startWorkers(meter) {
        for (const connection of consumers) {
          work(connection, meter).catch((error) => {
            process.stderr.write(`${error.stack}\n`);
            process.exit(1);
          });
        }
      },
      async stopWorkers() {
        for (const connection of producers.concat(consumers)) connection.socket.destroy();
      },
    };
  }

  return {
    client: `bare sockets, node ${process.versions.node}`,
    prepare,
    close: async () => {},
  };
}

run({ open });
