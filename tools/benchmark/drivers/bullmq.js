// Drives BullMQ on Redis: Queue.add by the producers, a Worker for the workers.
//
// One connection a side: a single Queue shared by all producers and one Worker with that many jobs
// under way, which is how BullMQ is meant to be run. With more connections there are as many Queues
// and Workers.
'use strict';

const { Queue, Worker } = require('bullmq');
const { nameAndVersion, run } = require('./lines.js');

// A finished job is removed, as an acknowledged job is elsewhere; otherwise Redis would keep it.
const JOB_OPTIONS = { removeOnComplete: true, removeOnFail: true };

async function open(options) {
  // No auto-pipelining: it made a drained job cost the client half as much again.
  const connection = { host: '127.0.0.1', port: options.port, maxRetriesPerRequest: null };
  const clients = ['bullmq', 'ioredis'].map(nameAndVersion).join(', ');
  const data = { body: 'x'.repeat(options.payload_bytes) };

  async function prepare(order) {
    const perSide = Math.max(1, Math.floor(options.connections / 2));
    const count = Math.min(perSide, order.parties);
    const queues = [];
    const workers = [];
    let meter = null;
    for (let i = 0; i < count; i++) {
      queues.push(new Queue(order.queue, { connection, defaultJobOptions: JOB_OPTIONS }));
      await queues[i].waitUntilReady();
      if (order.phase === 'enqueue') continue;
      workers.push(
        new Worker(order.queue, async () => {}, {
          connection,
          concurrency: Math.floor(order.parties / count),
          autorun: false,
        }),
      );
      workers[i].on('completed', () => meter.complete());
      workers[i].on('error', () => {}); // the close below cuts the blocking read
      await workers[i].waitUntilReady();
    }

    return {
      enqueueOne: (party) => queues[party % queues.length].add('job', data),
      async startWorkers(phaseMeter) {
        meter = phaseMeter;
        for (const worker of workers) worker.run().catch(() => {}); // see 'error' above
      },
      async stopWorkers() {
        await Promise.all(workers.map((worker) => worker.close(true)));
        await Promise.all(queues.map((queue) => queue.close()));
      },
    };
  }

  return {
    client: `${clients}, node ${process.versions.node}`,
    prepare,
    close: async () => {},
  };
}

run({ open });
