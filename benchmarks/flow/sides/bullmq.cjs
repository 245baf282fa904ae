// BullMQ on Node. It speaks the words of producer.py, works when it is told to, and leaves behind what track.py does.

const fs = require("node:fs");
const path = require("node:path");
const { parseArgs } = require("node:util");
const { Queue, Worker } = require("bullmq");

const FOLDER = process.env.BENCH_FOLDER;
const NAME = "bench";
const PAYLOAD = "x".repeat(200);
const RETRY_AFTER = { flaky: 5, late: 1000 };
const MOST_ATTEMPTS = 3;
const WARM_UP = 20;
const CALLERS = 100;
const CHUNK = 1000;
const SECOND = 1_000_000_000n;

const server = new URL(process.env.BENCH_URL);
const connection = { host: server.hostname, port: Number(server.port) };
const seconds = () => Number(process.hrtime.bigint()) / 1e9;

function work(concurrency) {
  const count = fs.openSync(path.join(FOLDER, `count-${process.pid}`), "w+");
  const stamps = fs.openSync(path.join(FOLDER, "stamps"), "a");
  const number = Buffer.alloc(8);
  const failed = new Map();
  let counted = 0n;

  const stamp = (nanoseconds) => {
    const bytes = Buffer.alloc(8);
    bytes.writeBigInt64LE(nanoseconds);
    fs.writeSync(stamps, bytes);
  };

  const run = async (job) => {
    const now = process.hrtime.bigint();
    counted += 1n;
    number.writeBigUInt64LE(counted);
    fs.writeSync(count, number, 0, 8, 0);
    if (job.name in RETRY_AFTER && job.attemptsMade === 0) {
      failed.set(job.id, process.hrtime.bigint());
      throw new Error("failed once");
    }
    if (job.data.sent !== "0") {
      const begun = job.name === "prompt" ? BigInt(job.data.sent) : failed.get(job.id) + SECOND;
      stamp(now - begun);
    }
  };
  new Worker(NAME, run, { connection, concurrency });
}

const options = (task) => ({
  removeOnComplete: true,
  ...(task in RETRY_AFTER && { attempts: MOST_ATTEMPTS, backoff: { type: "fixed", delay: RETRY_AFTER[task] } }),
});

class Producer {
  queue = new Queue(NAME, { connection });

  send(task, sent) {
    return this.queue.add(task, { sent: String(sent), payload: PAYLOAD }, options(task));
  }

  async one(count) {
    for (let number = 0; number < count; number++) await this.send("nothing", 0n);
  }

  awaited(count) {
    return this.one(count);
  }

  async crowd(count) {
    const call = async () => this.one(Math.floor(count / CALLERS));
    await Promise.all(Array.from({ length: CALLERS }, call));
  }

  async bulk(count, task = "nothing") {
    const job = { name: task, data: { sent: "0", payload: PAYLOAD }, opts: options(task) };
    for (let start = 0; start < count; start += CHUNK) {
      await this.queue.addBulk(Array(Math.min(CHUNK, count - start)).fill(job));
    }
  }

  async speed(word, count) {
    await this.one(WARM_UP);
    const started = seconds();
    await this[word](count);
    return count / (seconds() - started);
  }

  async pace(task, count, every) {
    const took = [];
    const begun = seconds();
    for (let number = -WARM_UP; number < count; number++) {
      const sent = number >= 0 ? process.hrtime.bigint() : 0n;
      await this.send(task, sent);
      if (sent) took.push(Number(process.hrtime.bigint() - sent) / 1e6);
      const due = begun + (number + WARM_UP + 1) * every;
      await new Promise((resolve) => setTimeout(resolve, Math.max(0, (due - seconds()) * 1000)));
    }
    return took;
  }
}

async function main() {
  const { positionals, values } = parseArgs({
    allowPositionals: true,
    options: {
      task: { type: "string", default: "nothing" },
      count: { type: "string", default: "1" },
      every: { type: "string", default: "0.02" },
      concurrency: { type: "string", default: "100" },
      tenants: { type: "string" },
    },
  });
  const [word] = positionals;
  const count = Number(values.count);
  if (word === "work") return work(Number(values.concurrency));
  if (word === "versions") {
    return console.log(JSON.stringify({ node: process.version, bullmq: require("bullmq/package.json").version }));
  }
  const producer = new Producer();
  let answer = null;
  if (word === "fill") await producer.bulk(count, values.task);
  else if (word === "pace") answer = await producer.pace(values.task, count, Number(values.every));
  else answer = await producer.speed(word, count);
  await producer.queue.close();
  console.log(JSON.stringify(answer));
}

main();
