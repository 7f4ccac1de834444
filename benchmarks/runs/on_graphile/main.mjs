// graphile-worker's side, with the verbs of the other sides: a local queue of 2,000, completions batched, 24 at once.
// It deletes completed tasks. See ../tally.py for the file that the tally is written to.

import { openSync, writeSync } from "node:fs";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { Logger, makeWorkerUtils, run } from "graphile-worker";

const TALLIED_MS = 2;
const silent = new Logger(() => () => {});
const now = () => (performance.timeOrigin + performance.now()) / 1000;
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const told = async () => void (await lines.next());

const using = async (url, act) => {
  const utils = await makeWorkerUtils({ connectionString: url, logger: silent });
  try {
    return await act(utils);
  } finally {
    await utils.release();
  }
};

const prepare = ({ url }) => using(url, (utils) => utils.migrate()).then(() => ({}));

const fill = ({ url, number, at_once }) =>
  using(url, async (utils) => {
    const started = performance.now();
    for (let first = 0; first < number; first += at_once) {
      const size = Math.min(at_once, number - first);
      await utils.addJobs(Array.from({ length: size }, (_, i) => ({ identifier: "note", payload: { n: first + i } })));
    }
    return { rate: (number / (performance.now() - started)) * 1000 };
  });

const enqueue = ({ url, number, gap }) =>
  using(url, async (utils) => {
    const sent = [];
    let taken = 0;
    for (let n = 0; n < number; n++) {
      sent.push(now());
      const started = performance.now();
      await utils.addJob("note", { n });
      taken += performance.now() - started;
      if (gap) await sleep(gap * 1000);
    }
    return { rate: (number / taken) * 1000, sent };
  });

const work = async ({ url, number, tally }) => {
  const file = openSync(tally, "r+");
  const count = new BigInt64Array(1);
  const starts = new Float64Array(number);
  const runs = new Uint8Array(number);
  const note = async ({ n }) => {
    if (!runs[n]) starts[n] = now();
    runs[n]++;
    count[0]++;
  };
  let written = 0n;
  const tallied = setInterval(() => {
    if (count[0] !== written) writeSync(file, count, 0, 8, 0);
    written = count[0];
  }, TALLIED_MS);
  const worker = {
    connectionString: url,
    concurrentJobs: 24,
    maxPoolSize: 26,
    completeJobBatchDelay: 0,
    logger: silent,
    localQueue: { size: 2000 },
  };
  console.log("ready");
  await told();
  const runner = await run({ preset: { worker }, taskList: { note }, parsedCronItems: [], noHandleSignals: true });
  await told();
  await runner.stop();
  clearInterval(tallied);
  writeSync(file, count, 0, 8, 0);
  writeSync(file, starts, 0, starts.byteLength, 8);
  writeSync(file, runs, 0, runs.byteLength, 8 + starts.byteLength);
  return {};
};

const [verb, options] = process.argv.slice(2);
const answer = await { prepare, fill, enqueue, work }[verb](JSON.parse(options));
console.log(JSON.stringify(answer));
process.exit(0);
