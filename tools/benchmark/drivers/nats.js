// Drives NATS JetStream: publish until stored, a durable pull consumer, acknowledgements confirmed.
//
// A stream with work-queue retention on file storage. A job counts as done when the server has
// confirmed its acknowledgement (ackAck), as an Ack is answered elsewhere.
'use strict';

const { connect } = require('@nats-io/transport-node');
const { jetstream, jetstreamManager } = require('@nats-io/jetstream');
const { nameAndVersion, run } = require('./lines.js');

async function connectMany(port, count) {
  const connections = [];
  for (let i = 0; i < count; i++) {
    connections.push(await connect({ servers: `127.0.0.1:${port}` }));
  }
  return connections;
}

/**
 * Take jobs as one standing pull brings them; each is acknowledged at once, all side by side.
 * A fetch a job (`next`), which is closer to a reserve of one, does only half as many.
 */
async function consumeAll(messages, meter) {
  for await (const message of messages) {
    message.ackAck().then((confirmed) => {
      if (confirmed) meter.complete();
    }, ignoreClosing);
  }
}

// Workers are cut off when the phase is over; what they then say is of no interest.
function ignoreClosing() {}

async function open(options) {
  const payload = Buffer.alloc(options.payload_bytes, 'x');
  const perSide = Math.max(1, Math.floor(options.connections / 2));

  async function prepare(order) {
    const side = Math.min(perSide, order.parties);
    const producers = order.phase === 'drain' ? [] : await connectMany(options.port, side);
    const consumers = order.phase === 'enqueue' ? [] : await connectMany(options.port, side);
    const first = producers[0] || consumers[0];
    const manager = await jetstreamManager(first);
    await manager.streams.add({
      name: order.queue,
      subjects: [order.queue],
      retention: 'workqueue',
      storage: 'file',
      num_replicas: 1,
    });
    if (consumers.length) {
      await manager.consumers.add(order.queue, {
        durable_name: 'workers',
        ack_policy: 'explicit',
        max_ack_pending: order.parties,
      });
    }
    const pulls = [];
    for (const connection of consumers) {
      pulls.push(await jetstream(connection).consumers.get(order.queue, 'workers'));
    }
    const publishers = producers.map((connection) => jetstream(connection));
    return {
      enqueueOne: (party) => publishers[party % publishers.length].publish(order.queue, payload),
      async startWorkers(meter) {
        const share = Math.floor(order.parties / consumers.length);
        for (const pull of pulls) {
          const messages = await pull.consume({ max_messages: share });
          consumeAll(messages, meter).catch(ignoreClosing);
        }
      },
      async stopWorkers() {
        await Promise.all(producers.concat(consumers).map((connection) => connection.close()));
      },
    };
  }

  return {
    client: `${nameAndVersion('@nats-io/jetstream')}, node ${process.versions.node}`,
    prepare,
    close: async () => {},
  };
}

run({ open });
