// A worker for windlass in plain JavaScript: node 18 or later, no dependencies. Copy this file into your program.
//
//   const worker = new Worker({ url: "http://127.0.0.1:8765", key: process.env.WINDLASS_KEY, queues: ["mail"] });
//   worker.handle("mail.send", async (payload, { signal, progress, task }) => { … });
//   await worker.run();    // until worker.stop()
//
// Handlers run concurrently in the event loop, one per slot. A handler that blocks the loop also blocks heartbeats:
// do such work in a worker thread or a child process.

import { EventEmitter, once } from "node:events";
import { hostname } from "node:os";
import { setTimeout as sleep } from "node:timers/promises";

const LONG_POLL = 20; // seconds that a claim waits for a task; servers allow up to 30
const MOST = 500; // maximum number of tasks in one request
const FENCE_AT = 0.8; // fraction of the lease after which tasks are stopped if no heartbeat has succeeded
const LAST_WORDS = 5000; // milliseconds that a handler has to end after its signal was aborted
const LONGEST_TIMER = 2 ** 31 - 1;

/** Throw it in a handler to bury the task without further attempts. */
export class Fatal extends Error {}

/** Throw it in a handler to fail this attempt and retry after a number of seconds. */
export class RetryAfter extends Error {
  constructor(seconds, message) {
    super(message);
    this.seconds = seconds;
  }
}

/** Throw it in a handler to run the task again after a number of seconds; no attempt is counted. */
export class Snooze extends Error {
  constructor(seconds) {
    super(`snoozed for ${seconds} s`);
    this.seconds = seconds;
  }
}

/** Why a handler's signal was aborted: timedout, stopped (the task was cancelled), interrupted or lost. */
export class Ended extends Error {
  constructor(outcome) {
    super(`the task must stop: ${outcome}`);
    this.outcome = outcome;
  }
}

/** An error response of the server. */
class Refusal extends Error {
  constructor(status, detail, retryAfter) {
    super(`${status}: ${detail}`);
    this.status = status;
    this.retryAfter = retryAfter;
  }

  /** Whether the same request may succeed later. A key may be invalid briefly while keys are rotated. */
  get mayPass() {
    return this.status >= 500 || [401, 403, 408, 429].includes(this.status);
  }
}

export class Worker {
  #url;
  #key;
  #self; // this worker's description, sent with the session and every heartbeat
  #grace;
  #log;
  #handlers = new Map();
  #held = new Map(); // id -> run: tasks that are claimed and not yet settled
  #session = null;
  #opening = null; // a promise while a session is being opened
  #number = 0; // number of the last claim that was sent
  #through = 0; // number of the last claim that was answered or abandoned
  #settling = false;
  #watchdog; // fires if no heartbeat has succeeded for too long
  #news = new EventEmitter(); // emits "room" when a slot becomes free
  #stopping = new AbortController(); // aborted: stop claiming
  #over = new AbortController(); // aborted: send no more requests

  constructor({ url, key, queues = ["default"], slots = 10, lease = 30, grace = 20, name, log = console.error }) {
    this.#url = url.replace(/\/+$/, "");
    this.#key = key;
    const [host, pid] = [hostname(), process.pid];
    this.#self = { name: name ?? `${host}-${pid}`, queues, slots, lease, host, pid };
    this.#grace = grace;
    this.#log = log;
  }

  /** Register the handler of a type: (payload, { task, signal, progress }) => result. */
  handle(type, handler) {
    this.#handlers.set(type, handler);
    return this;
  }

  /** Run tasks until stop() is called. Throws if the server rejects the first request of this worker. */
  async run() {
    this.#self.types = [...this.#handlers.keys()];
    await this.#open(null, (error) => !(error.status < 500));
    this.#log(`${this.#self.name} serves the queues ${this.#self.queues.join(", ")}`);
    const beating = this.#beat();
    while (!this.#stopping.signal.aborted) await this.#claim();
    await this.#finish();
    await beating;
  }

  /** Stop claiming. Running tasks get the grace period to end; then they are released. */
  stop() {
    this.#stopping.abort();
  }

  // -- the session --------------------------------------------------------------------------------------------

  /** Open a session to replace one that has expired; its tasks are dropped, as other workers may have them. */
  async #open(over, mayPass) {
    if (over !== this.#session) return this.#opening; // already replaced
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
        this.#log(`heartbeat failed, retrying: ${error.message}`);
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

  /** Restart the watchdog after a heartbeat that was sent at this time: it drops all tasks unless another succeeds. */
  #renewed(sent) {
    clearTimeout(this.#watchdog);
    const silent = () => {
      this.#log("no heartbeat has succeeded for most of the lease; stopping all tasks");
      this.#dropAll();
    };
    this.#watchdog = setTimeout(silent, sent + this.#self.lease * FENCE_AT * 1000 - performance.now());
  }

  /** Stop a task whose lease is lost. One that has ended is settled anyway, which has no effect without a lease. */
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

  /** Claim tasks for the free slots and run them. */
  async #claim() {
    const signal = this.#stopping.signal;
    const { queues, slots, types } = this.#self;
    await this.#until(() => this.#held.size < slots && this.#session, signal).catch(() => {});
    if (signal.aborted) return;
    const session = this.#session;
    const number = ++this.#number;
    const limit = Math.min(slots - this.#held.size, MOST);
    const said = JSON.stringify({ session, queues, types, limit, number, wait: LONG_POLL });
    try {
      const { tasks } = await this.#ask("POST", "/work/claim", said, signal);
      this.#through = number; // from now on heartbeats must list these tasks, or they are released
      if (session !== this.#session) return;
      for (const run of tasks.map((task) => this.#hold(task))) this.#run(run);
    } catch (error) {
      this.#through = number; // the next heartbeat releases tasks that it may have granted
      if (signal.aborted) return;
      this.#log(`claim failed, retrying: ${error.message}`);
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
    if (this.#held.get(task.id) !== run) return; // the lease was lost meanwhile
    const duration = (performance.now() - began) / 1000;
    run.ended = settlement(task, { ...outcome, duration });
    this.#settle();
  }

  /** Run the handler and return its outcome. */
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

  /** Settle all tasks that have ended, and those that end meanwhile; retries until the server confirms. */
  async #settle() {
    if (this.#settling) return;
    this.#settling = true;
    await null; // include tasks that end in the same tick
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
      for (const { id, receipt } of tasks) if (receipt === "lost") this.#log(`task ${id}: lost its lease`);
    } catch (error) {
      if (this.#over.signal.aborted) return;
      if (batch.length > 1) {
        for (const run of batch) await this.#settleBatch([run]); // settle one by one, as one of them is invalid
        return;
      }
      const [run] = batch;
      this.#log(`task ${run.task.id}: the server rejected its outcome: ${error.message}`);
      if (!run.refused) {
        run.refused = true;
        run.ended = settlement(run.task, { outcome: "failed", error: described(error), fatal: true });
        return; // settled as failed by the next batch
      }
    }
    for (const run of batch) if (this.#held.get(run.task.id) === run) this.#held.delete(run.task.id);
    this.#news.emit("room");
  }

  /** Wait for running tasks, interrupt those that remain, settle all, and end the session. */
  async #finish() {
    const isIdle = () => this.#held.size === 0;
    this.#log(`stopping; running tasks: ${this.#held.size}`);
    await this.#until(isIdle, AbortSignal.timeout(this.#grace * 1000)).catch(() => {});
    for (const run of this.#held.values()) run.abort.abort(new Ended("interrupted"));
    const patience = Math.max(this.#self.lease * 1000, LAST_WORDS + 1000);
    await this.#until(isIdle, AbortSignal.timeout(patience)).catch(() => {});
    try {
      if (this.#session) await this.#heartbeat(); // releases tasks granted by an aborted claim
      if (this.#session) await this.#ask("DELETE", `/work/sessions/${this.#session}`);
    } catch (error) {
      this.#log(`cannot end the session; it will expire: ${error.message}`);
    }
    this.#over.abort();
  }

  // -- requests -----------------------------------------------------------------------------------------------

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

  /** Repeat a request until it succeeds or fails permanently. */
  async #persist(ask, signal, mayPass = (error) => !(error instanceof Refusal) || error.mayPass) {
    for (let pause = 0.2; ; pause = Math.min(pause * 2, 10)) {
      try {
        return await ask();
      } catch (error) {
        if (signal.aborted || !mayPass(error)) throw error;
        this.#log(`retrying: ${error.cause?.message ?? error.message}`);
        await sleep(1000 * Math.max(error.retryAfter || 0, pause * (0.5 + Math.random())), null, { signal });
      }
    }
  }

  async #until(isSo, signal) {
    while (!isSo()) await once(this.#news, "room", { signal });
  }
}

/** Encode a lease and its outcome as JSON. A result that JSON cannot represent becomes a fatal error. */
function settlement(task, outcome) {
  const lease = { id: task.id, fence: task.fence };
  try {
    return JSON.stringify({ ...lease, ...outcome });
  } catch (error) {
    return JSON.stringify({ ...lease, outcome: "failed", error: described(error), fatal: true });
  }
}

/** Describe anything that was thrown as an error to store. */
function described(error) {
  const type = error?.name && error.name !== "Error" ? error.name : error?.constructor?.name || "Error";
  const traceback = error?.stack ? text(error.stack, 50_000) : null;
  return { type: text(type, 200), message: text(error?.message ?? error, 10_000), traceback };
}

/** Convert to text of limited length without lone surrogates. */
function text(value, most) {
  return Buffer.from(String(value).slice(0, most)).toString();
}

/** Return a promise that rejects once the signal was aborted and the handler has had time to end. */
function givenUp(signal) {
  return new Promise((_, reject) => {
    signal.addEventListener("abort", () => setTimeout(reject, LAST_WORDS, signal.reason).unref(), { once: true });
  });
}
