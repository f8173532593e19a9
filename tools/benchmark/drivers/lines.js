// What the peers' drivers share: the line protocol towards tools/bench and the counting of a phase.
//
// tools/bench writes one JSON order a line ({"phase", "queue", "jobs", "seconds", ...}). The driver
// connects and prepares what the order needs and says {"prepared": true}; the next line, whatever
// it says, lets it go, and the result is its next line. End of input ends the driver.
'use strict';

const fs = require('node:fs');
const path = require('node:path');
const readline = require('node:readline');

/** 'name version' of an installed package; read from its file, as some hide it from require. */
function nameAndVersion(name) {
  const file = path.join(process.env.NODE_PATH, name, 'package.json');
  return `${name} ${JSON.parse(fs.readFileSync(file, 'utf8')).version}`;
}

/** Counts one phase: who may still start a job, how many are done, when it is over. */
class Meter {
  constructor(order) {
    this.jobsMax = order.jobs;
    this.secondsMax = order.seconds;
    this.issued = 0;
    this.enqueued = 0;
    this.completed = 0;
    this.goal = Infinity; // completions after which draining is over
    this.startedMs = performance.now();
    this.deadlineMs = this.startedMs + order.seconds * 1000;
    this.drained = new Promise((resolve) => {
      this.endDrain = resolve;
    });
  }

  /** Take the right to enqueue one more job; false once the count or the time is used up. */
  mayEnqueue() {
    if (this.issued >= this.jobsMax || performance.now() >= this.deadlineMs) return false;
    this.issued += 1;
    return true;
  }

  /** One job was taken, worked and durably removed. */
  complete() {
    this.completed += 1;
    if (this.completed >= this.goal) this.endDrain();
  }

  isDrained() {
    return this.completed >= this.goal;
  }

  /** Wait until the goal is met, at most until the phase's hard end. */
  async waitDrained(hardEndMs) {
    if (this.isDrained()) return;
    const timer = setTimeout(this.endDrain, Math.max(0, hardEndMs - performance.now()));
    await this.drained;
    clearTimeout(timer);
  }
}

/** Run `parties` loops that each enqueue one job at a time until the meter says stop. */
async function produce(meter, parties, enqueueOne) {
  const loops = [];
  for (let party = 0; party < parties; party++) {
    loops.push(
      (async () => {
        while (meter.mayEnqueue()) {
          await enqueueOne(party);
          meter.enqueued += 1;
        }
      })(),
    );
  }
  await Promise.all(loops);
}

/** Carry out one order. `peer` has enqueueOne(party), startWorkers(meter), stopWorkers(). */
async function runPhase(order, peer) {
  const cpuBefore = process.cpuUsage();
  const meter = new Meter(order);
  let endedMs;
  if (order.phase === 'enqueue') {
    await produce(meter, order.parties, peer.enqueueOne);
    endedMs = performance.now();
  } else if (order.phase === 'drain') {
    meter.goal = order.jobs;
    await peer.startWorkers(meter);
    await meter.waitDrained(meter.deadlineMs);
    endedMs = performance.now();
  } else if (order.phase === 'both') {
    await peer.startWorkers(meter);
    await produce(meter, order.parties, peer.enqueueOne);
    meter.goal = meter.enqueued;
    // Producers ran for the phase's time; the workers may take three times as long again.
    await meter.waitDrained(meter.deadlineMs + 3000 * order.seconds);
    endedMs = performance.now();
  } else {
    throw new Error(`unknown phase ${order.phase}`);
  }
  const cpu = process.cpuUsage(cpuBefore);
  return {
    phase: order.phase,
    enqueued: meter.enqueued,
    completed: meter.completed,
    seconds: (endedMs - meter.startedMs) / 1000,
    client_cpu_seconds: (cpu.user + cpu.system) / 1e6,
  };
}

function say(answer) {
  process.stdout.write(JSON.stringify(answer) + '\n');
}

/** The driver's life: connect, say ready, one answer an order, then close. */
async function main({ open }) {
  const options = JSON.parse(process.argv[2]);
  const session = await open(options);
  say({ client: session.client });
  let order = null;
  let peer = null;
  for await (const line of readline.createInterface({ input: process.stdin })) {
    if (peer === null) {
      order = JSON.parse(line);
      peer = await session.prepare(order);
      say({ prepared: true });
    } else {
      say(await runPhase(order, peer));
      await peer.stopWorkers();
      peer = null;
    }
  }
  await session.close();
  process.exit(0);
}

function run(driver) {
  main(driver).catch((error) => {
    process.stderr.write(`${error.stack}\n`);
    process.exit(1);
  });
}

module.exports = { run, nameAndVersion };
