// BullMQ's side: one verb per run, as in ../on_huey.py. One worker with 100 tasks at once; it keeps completed ones.

import { once } from "node:events";
import { setTimeout as pause } from "node:timers/promises";

import { Queue, Worker } from "bullmq";

const AT_ONCE = 1000;
const RUNNING = 100;
const QUIET_SECONDS = 1;
const FIRST_SECONDS = 10;

// Seconds by the clock that all processes share, Python's time.monotonic().
const now = () => Number(process.hrtime.bigint()) / 1e9;

const connection = (path) => {
  const { hostname, port } = new URL(path);
  return { host: hostname, port: Number(port), maxRetriesPerRequest: null };
};

const using = async (path, act) => {
  const queue = new Queue("bench", { connection: connection(path) });
  try {
    await queue.waitUntilReady();
    return await act(queue);
  } finally {
    await queue.close();
  }
};

// Enqueue this many in batches, each with a text of this size.
const preload = ({ path, number, size = 0 }) =>
  using(path, async (queue) => {
    const text = size ? { text: "x".repeat(size) } : {};
    const started = performance.now();
    for (let first = 0; first < number; first += AT_ONCE) {
      const length = Math.min(AT_ONCE, number - first);
      await queue.addBulk(Array.from({ length }, (_, i) => ({ name: "note", data: { n: first + i, ...text } })));
    }
    return { rate: (number / (performance.now() - started)) * 1000 };
  });

const enqueue = ({ path, number }) =>
  using(path, async (queue) => {
    const started = performance.now();
    for (let n = 0; n < number; n++) await queue.add("note", { n });
    return { rate: (number / (performance.now() - started)) * 1000 };
  });

// From the start of the worker to the last completion that the server confirmed.
const drain = async ({ path, number }) => {
  const seen = new Set();
  const before = process.cpuUsage();
  const started = performance.now();
  const note = async (task) => void seen.add(task.data.n);
  const worker = new Worker("bench", note, { connection: connection(path), concurrency: RUNNING });
  let completed = 0;
  await new Promise((resolve) => worker.on("completed", () => ++completed === number && resolve()));
  const taken = performance.now() - started;
  const { user, system } = process.cpuUsage(before);
  await worker.close();
  if (seen.size !== number) throw new Error(`${seen.size} of ${number} tasks ran`);
  return { rate: (number / taken) * 1000, processor: (user + system) / number };
};

// Run tasks beside other processes until none have come for a second.
const share = async ({ path }) => {
  const seen = [];
  let ended = 0;
  console.log("ready");
  await once(process.stdin, "data");
  const began = now();
  const note = async (task) => void seen.push(task.data.n);
  const worker = new Worker("bench", note, { connection: connection(path), concurrency: RUNNING });
  worker.on("completed", () => (ended = now()));
  while (now() - (ended || began) < (ended ? QUIET_SECONDS : FIRST_SECONDS)) await pause(5);
  await worker.close();
  process.stdin.destroy();
  return { began, ended, seen };
};

// Run the worker for pickup across processes, until this many tasks have started.
const serve = async ({ path, number }) => {
  const latencies = [];
  const stamp = async (task) => void latencies.push((now() - task.data.sent) * 1000);
  const worker = new Worker("bench", stamp, { connection: connection(path), concurrency: RUNNING });
  await worker.waitUntilReady();
  await pause(1000);
  console.log("ready");
  while (latencies.length < number) await pause(5);
  await worker.close();
  latencies.sort((a, b) => a - b);
  const point = (of) => latencies[Math.max(0, Math.ceil(of * number) - 1)];
  return { p50: point(0.5), p99: point(0.99) };
};

// Run the producer for pickup across processes.
const send = ({ path, number, gap }) =>
  using(path, async (queue) => {
    for (let n = 0; n < number; n++) {
      await queue.add("stamp", { sent: now() });
      await pause(gap * 1000);
    }
    return {};
  });

const [verb, options] = process.argv.slice(2);
console.log(JSON.stringify(await { preload, enqueue, drain, share, serve, send }[verb](JSON.parse(options))));
