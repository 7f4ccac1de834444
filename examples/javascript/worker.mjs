// A worker that renders reports: node worker.mjs http://127.0.0.1:8765 [QUEUE…]
// Its key, of scope `work`, is in WINDLASS_KEY.

import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import { Fatal, Worker } from "./windlass.mjs";

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    slots: { type: "string", default: "10" },
    lease: { type: "string", default: "30" },
    grace: { type: "string", default: "20" },
  },
});
const [url, ...queues] = positionals;
if (!url || !process.env.WINDLASS_KEY) {
  console.error("usage: WINDLASS_KEY=… node worker.mjs URL [QUEUE…] [--slots 10] [--lease 30] [--grace 20]");
  process.exit(2);
}

const worker = new Worker({
  url,
  key: process.env.WINDLASS_KEY,
  queues: queues.length ? queues : ["default"],
  slots: Number(values.slots),
  lease: Number(values.lease),
  grace: Number(values.grace),
});

worker.handle("report", async ({ month, pages = 3 }, { signal, progress }) => {
  if (!/^\d{4}-\d{2}$/.test(month)) throw new Fatal(`${month} is not a month such as 2026-11`);
  for (let page = 1; page <= pages; page++) {
    await sleep(100, null, { signal }); // pass the signal on, so that the task can be stopped
    progress(page / pages, `page ${page}`);
  }
  return { month, pages };
});

// A second signal ends the process.
for (const signal of ["SIGTERM", "SIGINT"]) process.once(signal, () => worker.stop());
const cannotWork = (error) => {
  console.error(`this worker cannot work: ${error.message}`);
  process.exit(1);
};
worker.run().then(() => process.exit(0), cannotWork); // even if a handler ignores its signal
