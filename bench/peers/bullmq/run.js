// Does with BullMQ what the benchmark does with Eclusa. Reads commands from standard input, one per line, and answers each with
// the seconds it took:
//
//   payload BYTES            set the payload size of new jobs
//   fill JOBS                add jobs that wait
//   hold JOBS                start waiting jobs, which stay in flight
//   lives JOBS bulk|single   add jobs and process as many at the same time
//
// Its jobs are in database 1. Usage: node run.js PORT
import { createInterface } from "node:readline";
import { Queue, Worker } from "bullmq";

const BULK = 100;
const FILL_BULK = 1000;
const CONCURRENCY = 100;
const PRODUCERS = { bulk: 5, single: 100 };
const HOUR = 3600 * 1000;

const connection = { host: "127.0.0.1", port: Number(process.argv[2]), db: 1 };
const name = "lane";
// Keeps as many finished jobs, and as long, as Eclusa by default.
const kept = { count: 10000, age: 600 };
const opts = { removeOnComplete: kept, removeOnFail: kept };
// With its name and quotes, the data is as long as the payload elsewhere.
// Random text, as elsewhere: compressible text would distort the figures.
const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
const text = Array.from({ length: 1 << 21 }, () => letters[Math.floor(Math.random() * 62)]).join("");
let bytes = 200;
const data = () => {
  const at = Math.floor(Math.random() * (text.length - bytes));
  return { p: text.slice(at, at + bytes - 8) };
};
const queue = new Queue(name, { connection });

const bulkOf = (count) => Array.from({ length: count }, () => ({ name: "job", data: data(), opts }));

async function fill(jobs) {
  for (let left = jobs; left > 0; left -= FILL_BULK) {
    await queue.addBulk(bulkOf(Math.min(left, FILL_BULK)));
  }
}

async function payload(count) {
  bytes = count;
}

const holders = [];
async function hold(jobs) {
  const holder = new Worker(name, null, { connection, lockDuration: HOUR, skipStalledCheck: true });
  holders.push(holder);
  for (let held = 0; held < jobs; held += CONCURRENCY) {
    const asked = Array.from({ length: Math.min(CONCURRENCY, jobs - held) }, () => holder.getNextJob("holder"));
    await Promise.all(asked);
  }
}

async function produce(jobs, adds) {
  let left = jobs;
  const producer = async () => {
    while (left > 0) {
      const count = adds === "bulk" ? Math.min(BULK, left) : 1;
      left -= count;
      await (adds === "bulk" ? queue.addBulk(bulkOf(count)) : queue.add("job", data(), opts));
    }
  };
  await Promise.all(Array.from({ length: PRODUCERS[adds] }, producer));
}

async function lives(jobs, adds) {
  let ended = 0;
  let all;
  const done = new Promise((resolve) => (all = resolve));
  const worker = new Worker(name, async () => {}, { connection, concurrency: CONCURRENCY, autorun: false });
  await worker.waitUntilReady();
  worker.on("completed", () => {
    ended += 1;
    if (ended === jobs) {
      all(seconds());
    }
  });
  restart();
  worker.run();
  await produce(jobs, adds);
  const added = seconds();
  const took = Math.max(await done, added);
  await worker.close();
  return took;
}

let started = 0;
const restart = () => (started = performance.now());
const seconds = () => (performance.now() - started) / 1000;

await queue.waitUntilReady();
console.log("ready");
for await (const line of createInterface({ input: process.stdin })) {
  const [verb, jobs, adds] = line.split(" ");
  restart();
  const took = await { payload, fill, hold, lives }[verb](Number(jobs), adds);
  console.log(took ?? seconds());
}
await Promise.all(holders.map((holder) => holder.close(true)));
await queue.close();
process.exit(0);
