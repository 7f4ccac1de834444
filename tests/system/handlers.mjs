// The handlers of the tests, in JavaScript: each run writes down how it begins and how it ends.

import { appendFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { Fatal, RetryAfter, Snooze, Worker } from "../../examples/javascript/windlass.mjs";

const { url, diary, ...options } = JSON.parse(process.argv[2]);
const worker = new Worker({ url, key: process.env.WINDLASS_KEY, ...options });
const write = (line) => appendFileSync(diary, JSON.stringify({ ...line, at: Date.now() }) + "\n");

function handle(type, handler) {
  worker.handle(type, async (payload, context) => {
    const { id, fence, attempt } = context.task;
    write({ what: "begun", id, fence, attempt });
    try {
      const result = await handler(payload, context);
      write({ what: "returned", id, fence });
      return result;
    } catch (error) {
      const what = context.signal.aborted ? context.signal.reason.outcome : "threw";
      write({ what, id, fence });
      throw error;
    }
  });
}

const snoozed = new Set();

handle("nap", async ({ seconds = 0, value = null }, { signal }) => {
  await sleep(seconds * 1000, null, { signal });
  return value;
});
handle("deaf", async ({ seconds }) => {
  await sleep(seconds * 1000); // takes no signal
});
handle("steps", async ({ seconds }, { signal, progress }) => {
  progress(0.25, "a quarter");
  await sleep(seconds * 1000, null, { signal });
});
handle("flaky", ({ failures, after }, { task }) => {
  if (task.attempt > failures) return `done in ${task.attempt}`;
  if (after !== undefined) throw new RetryAfter(after, "not yet");
  throw new TypeError("unlucky");
});
handle("hopeless", () => {
  throw new Fatal("there is no way");
});
handle("later", (_, { task }) => {
  if (snoozed.has(task.id)) return "now";
  snoozed.add(task.id);
  throw new Snooze(0.2);
});
handle("leak", ({ password }) => {
  throw new Fatal(`who knows ${password} may come in`);
});
handle("odd", ({ what }) => {
  if (what === "surrogate") return "\ud83d";
  if (what === "large") return "x".repeat(2 ** 20);
  if (what === "bigint") return 1n;
  if (what === "nothing thrown") throw undefined;
  return what;
});

for (const signal of ["SIGTERM", "SIGINT"]) process.once(signal, () => worker.stop());
const cannotWork = (error) => {
  console.error(`this worker cannot work: ${error.message}`);
  process.exit(1);
};
worker.run().then(() => process.exit(0), cannotWork); // also from under a handler that did not heed its signal
