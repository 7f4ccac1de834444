// BullMQ's side: one verb per run, as in ../on_huey.py. One worker with 100 tasks at once; it keeps completed ones.

import { Queue, Worker } from "bullmq";

const AT_ONCE = 1000;
const RUNNING = 100;

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

const [verb, options] = process.argv.slice(2);
console.log(JSON.stringify(await { preload, enqueue, drain }[verb](JSON.parse(options))));
