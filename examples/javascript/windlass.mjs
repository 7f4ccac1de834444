// A worker for windlass in plain JavaScript: node 18 or later, no dependencies. Copy this file into your program.
//
//   const worker = new Worker({ url: "http://127.0.0.1:8765", key: process.env.WINDLASS_KEY, queues: ["mail"] });
//   worker.handle("mail.send", async (payload, { signal, progress, task }) => { … });
//   await worker.run();    // until worker.stop()
//
// Handlers run in the event loop, as many at once as there are slots. One that keeps the loop busy holds up the
// heartbeat as well: hand such work to a worker thread or a child process.

import { EventEmitter, once } from "node:events";
import { hostname } from "node:os";
import { setTimeout as sleep } from "node:timers/promises";

const LONG_POLL = 20; // seconds that a claim waits for a task; a server allows 30
const MOST = 500; // tasks in one request
const FENCE_AT = 0.8; // of the lease without a heartbeat: stop before others begin
const LAST_WORDS = 5000; // milliseconds a handler may take to end after its signal has fired
const LONGEST_TIMER = 2 ** 31 - 1;

/** Throw it in a handler: do not try this task again. */
export class Fatal extends Error {}

/** Throw it in a handler: it failed, and is to be tried again in so many seconds. */
export class RetryAfter extends Error {
  constructor(seconds, message) {
    super(message);
    this.seconds = seconds;
  }
}

/** Throw it in a handler: not now. It comes back in so many seconds, and no attempt is counted. */
export class Snooze extends Error {
  constructor(seconds) {
    super(`again in ${seconds} s`);
    this.seconds = seconds;
  }
}

/** Why a handler's signal has fired: timedout, stopped (somebody cancelled the task), interrupted or lost. */
export class Ended extends Error {
  constructor(outcome) {
    super(`the task is to end: ${outcome}`);
    this.outcome = outcome;
  }
}

/** What the server refused. */
class Refusal extends Error {
  constructor(status, detail, retryAfter) {
    super(`${status}: ${detail}`);
    this.status = status;
    this.retryAfter = retryAfter;
  }

  /** Whether the same request may succeed later. A key may be wrong for a moment, while keys are changed. */
  get mayPass() {
    return this.status >= 500 || [401, 403, 408, 429].includes(this.status);
  }
}

export class Worker {
  #url;
  #key;
  #self; // how this worker describes itself, at the beginning and in every heartbeat
  #grace;
  #log;
  #handlers = new Map();
  #held = new Map(); // id -> run: everything that was claimed and is not settled yet
  #session = null;
  #opening = null; // a promise, while a session is being opened
  #number = 0; // of the last claim sent
  #through = 0; // of the last claim that is answered or given up
  #settling = false;
  #watchdog; // fires if no heartbeat has got through for too long
  #news = new EventEmitter(); // a slot is free
  #stopping = new AbortController(); // claim no more
  #over = new AbortController(); // ask nothing more

  constructor({ url, key, queues = ["default"], slots = 10, lease = 30, grace = 20, name, log = console.error }) {
    this.#url = url.replace(/\/+$/, "");
    this.#key = key;
    const [host, pid] = [hostname(), process.pid];
    this.#self = { name: name ?? `${host}-${pid}`, queues, slots, lease, host, pid };
    this.#grace = grace;
    this.#log = log;
  }

  /** The handler of a type: (payload, { task, signal, progress }) => the result. */
  handle(type, handler) {
    this.#handlers.set(type, handler);
    return this;
  }

  /** Work until told to stop. Throws at once if the server refuses this worker from the start. */
  async run() {
    await this.#open(null, (error) => !(error.status < 500));
    this.#log(`${this.#self.name} works on ${this.#self.queues.join(", ")}`);
    const beating = this.#beat();
    while (!this.#stopping.signal.aborted) await this.#claim();
    await this.#finish();
    await beating;
  }

  /** Claim no more; what runs may end within the grace, and is given back after that. */
  stop() {
    this.#stopping.abort();
  }

  // -- the session --------------------------------------------------------------------------------------------

  /** Open a session, instead of the one that is over: what ran in that is others' by now. */
  async #open(over, mayPass) {
    if (over !== this.#session) return this.#opening; // it was seen to already
    this.#session = undefined;
    this.#dropAll();
    if (this.#stopping.signal.aborted) return;
    const opened = async () => {
      const sent = performance.now();
      const { session } = await this.#ask("POST", "/work/sessions", JSON.stringify(this.#self));
      this.#session = session;
      this.#renewed(sent);
      this.#news.emit("room");
    };
    this.#opening = this.#persist(opened, this.#stopping.signal, mayPass);
    return this.#opening;
  }

  async #beat() {
    const over = this.#over.signal;
    let every = this.#self.lease / 3;
    while (!over.aborted) {
      await sleep(every * 1000, null, { signal: over }).catch(() => {});
      if (over.aborted || !this.#session) continue;
      const session = this.#session;
      try {
        await this.#heartbeat();
        every = this.#self.lease / 3;
      } catch (error) {
        this.#log(`the heartbeat failed: ${error.message}`);
        every = Math.min(this.#self.lease / 3, 1);
        if (error.status === 410) this.#open(session).catch(() => {});
      }
    }
    clearTimeout(this.#watchdog);
  }

  async #heartbeat() {
    const sent = performance.now();
    const held = [...this.#held.values()].map(({ task, progress }) => ({ id: task.id, fence: task.fence, progress }));
    const said = { session: this.#session, worker: this.#self, held, through: this.#through };
    const { lost, cancel } = await this.#ask("POST", "/work/heartbeat", JSON.stringify(said));
    this.#renewed(sent);
    for (const { id, fence } of lost) {
      const run = this.#held.get(id);
      if (run?.task.fence === fence) this.#drop(run);
    }
    for (const id of cancel) this.#held.get(id)?.abort.abort(new Ended("stopped"));
  }

  /** A heartbeat got through that was sent then. Without another one in time, all that runs is to end. */
  #renewed(sent) {
    clearTimeout(this.#watchdog);
    const silent = () => {
      this.#log("no heartbeat got through: others may have the tasks, so they end here");
      this.#dropAll();
    };
    this.#watchdog = setTimeout(silent, sent + this.#self.lease * FENCE_AT * 1000 - performance.now());
  }

  /** It is another's. What has ended is settled all the same: if the lease does not hold, that changes nothing. */
  #drop(run) {
    if (run.ended) return;
    this.#held.delete(run.task.id);
    run.abort.abort(new Ended("lost"));
    this.#news.emit("room");
  }

  #dropAll() {
    for (const run of [...this.#held.values()]) this.#drop(run);
  }

  // -- tasks --------------------------------------------------------------------------------------------------

  /** Claim once, for the slots that are free, and run what comes. */
  async #claim() {
    const signal = this.#stopping.signal;
    const { queues, slots } = this.#self;
    await this.#until(() => this.#held.size < slots && this.#session, signal).catch(() => {});
    if (signal.aborted) return;
    const session = this.#session;
    const number = ++this.#number;
    const limit = Math.min(slots - this.#held.size, MOST);
    const said = JSON.stringify({ session, queues, limit, number, wait: LONG_POLL });
    try {
      const { tasks } = await this.#ask("POST", "/work/claim", said, signal);
      this.#through = number; // from here on the heartbeat names these tasks, or they go to others
      if (session !== this.#session) return;
      for (const run of tasks.map((task) => this.#hold(task))) this.#run(run);
    } catch (error) {
      this.#through = number; // what it may have granted was lost on the way: the heartbeat says so
      if (signal.aborted) return;
      this.#log(`the claim failed: ${error.message}`);
      if (error.status === 410) await this.#open(session).catch(() => {});
      else await sleep(1000 * Math.max(error.retryAfter || 0, 0.5 + Math.random()), null, { signal }).catch(() => {});
    }
  }

  #hold(task) {
    const run = { task, abort: new AbortController(), progress: undefined, ended: null };
    this.#held.set(task.id, run);
    return run;
  }

  async #run(run) {
    const { task, abort } = run;
    const began = performance.now();
    const timedOut = () => abort.abort(new Ended("timedout"));
    const timer = task.timeout && setTimeout(timedOut, Math.min(task.timeout * 1000, LONGEST_TIMER));
    const outcome = await this.#outcome(run);
    clearTimeout(timer);
    if (this.#held.get(task.id) !== run) return; // lost meanwhile
    const duration = (performance.now() - began) / 1000;
    run.ended = settlement(task, { ...outcome, duration });
    this.#settle();
  }

  /** What happened in the handler. */
  async #outcome(run) {
    const { task, abort } = run;
    const { signal } = abort;
    const handler = this.#handlers.get(task.type);
    if (!handler) return { outcome: "unhandled" };
    if (task.cancel_requested) return { outcome: "stopped" };
    const progress = (fraction, message = "") => {
      run.progress = { fraction: Number.isFinite(fraction) ? fraction : 0, message: text(message, 500) };
    };
    try {
      const result = await Promise.race([handler(task.payload, { task, signal, progress }), givenUp(signal)]);
      return { outcome: "returned", result };
    } catch (error) {
      if (signal.aborted) return { outcome: signal.reason.outcome };
      if (error instanceof Snooze) return { outcome: "snoozed", delay: error.seconds };
      const after = error instanceof RetryAfter ? error.seconds : undefined;
      return { outcome: "failed", error: described(error), fatal: error instanceof Fatal, retry_after: after };
    }
  }

  /** Settle what has ended, and what ends meanwhile; however long it takes. */
  async #settle() {
    if (this.#settling) return;
    this.#settling = true;
    await null; // what ends in the same moment goes along
    let batch;
    while ((batch = [...this.#held.values()].filter((run) => run.ended).slice(0, MOST)).length) {
      if (this.#over.signal.aborted) return;
      await this.#settleBatch(batch);
    }
    this.#settling = false;
  }

  async #settleBatch(batch) {
    const said = `{"tasks":[${batch.map((run) => run.ended).join(",")}]}`;
    try {
      const { tasks } = await this.#persist(() => this.#ask("POST", "/work/settle", said), this.#over.signal);
      for (const { id, receipt } of tasks) if (receipt === "lost") this.#log(`${id} is another's by now`);
    } catch (error) {
      if (this.#over.signal.aborted) return;
      if (batch.length > 1) {
        for (const run of batch) await this.#settleBatch([run]); // one of them cannot be read: the others can
        return;
      }
      const [run] = batch;
      this.#log(`${run.task.id} cannot be settled as it ended: ${error.message}`);
      if (!run.refused) {
        run.refused = true;
        run.ended = settlement(run.task, { outcome: "failed", error: described(error), fatal: true });
        return; // and is settled so
      }
    }
    for (const run of batch) if (this.#held.get(run.task.id) === run) this.#held.delete(run.task.id);
    this.#news.emit("room");
  }

  /** Wait for what runs, then interrupt it; settle everything; end the session. */
  async #finish() {
    const isIdle = () => this.#held.size === 0;
    this.#log(`stopping; ${this.#held.size} tasks run`);
    await this.#until(isIdle, AbortSignal.timeout(this.#grace * 1000)).catch(() => {});
    for (const run of this.#held.values()) run.abort.abort(new Ended("interrupted"));
    const patience = Math.max(this.#self.lease * 1000, LAST_WORDS + 1000);
    await this.#until(isIdle, AbortSignal.timeout(patience)).catch(() => {});
    try {
      if (this.#session) await this.#heartbeat(); // gives back what a claim granted that was broken off
      if (this.#session) await this.#ask("DELETE", `/work/sessions/${this.#session}`);
    } catch (error) {
      this.#log(`the session could not be ended, and will run out: ${error.message}`);
    }
    this.#over.abort();
  }

  // -- asking -------------------------------------------------------------------------------------------------

  async #ask(method, path, body, signal) {
    const abort = new AbortController();
    const stop = () => abort.abort();
    signal?.addEventListener("abort", stop);
    const timer = setTimeout(stop, 1000 * (path === "/work/claim" ? LONG_POLL + 10 : 10));
    try {
      const headers = { authorization: `Bearer ${this.#key}`, "content-type": "application/json" };
      const answer = await fetch(this.#url + path, { method, headers, body, signal: abort.signal });
      if (answer.ok) return answer.status === 204 ? null : await answer.json();
      const problem = await answer.json().catch(() => ({}));
      const retryAfter = Number(answer.headers.get("retry-after"));
      throw new Refusal(answer.status, problem.detail ?? answer.statusText, retryAfter);
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener("abort", stop);
    }
  }

  /** Ask until it is answered, or refused for good. */
  async #persist(ask, signal, mayPass = (error) => !(error instanceof Refusal) || error.mayPass) {
    for (let pause = 0.2; ; pause = Math.min(pause * 2, 10)) {
      try {
        return await ask();
      } catch (error) {
        if (signal.aborted || !mayPass(error)) throw error;
        this.#log(`trying again: ${error.cause?.message ?? error.message}`);
        await sleep(1000 * Math.max(error.retryAfter || 0, pause * (0.5 + Math.random())), null, { signal });
      }
    }
  }

  async #until(isSo, signal) {
    while (!isSo()) await once(this.#news, "room", { signal });
  }
}

/** The lease and how it ended, as JSON. What JSON cannot say is a failure of its own, and no other try helps. */
function settlement(task, outcome) {
  const lease = { id: task.id, fence: task.fence };
  try {
    return JSON.stringify({ ...lease, ...outcome });
  } catch (error) {
    return JSON.stringify({ ...lease, outcome: "failed", error: described(error), fatal: true });
  }
}

/** Anything that can be thrown, as an error to keep. */
function described(error) {
  const type = error?.name && error.name !== "Error" ? error.name : error?.constructor?.name || "Error";
  const traceback = error?.stack ? text(error.stack, 50_000) : null;
  return { type: text(type, 200), message: text(error?.message ?? error, 10_000), traceback };
}

/** A text that can be sent: not too long, and no half of a character in it. */
function text(value, most) {
  return Buffer.from(String(value).slice(0, most)).toString();
}

/** Rejects once the signal has fired and the handler has had time to end. */
function givenUp(signal) {
  return new Promise((_, reject) => {
    signal.addEventListener("abort", () => setTimeout(reject, LAST_WORDS, signal.reason).unref(), { once: true });
  });
}
