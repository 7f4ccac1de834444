-- Tasks and the tables that belong to them.
-- Every name starts with windlass_: the file may contain the application's own tables, so that a task can be
-- enqueued in the same transaction as the rows it is about. Instants and durations are whole
-- microseconds, instants since 1970 in UTC. Payloads, results and steps are JSON as the client sent it.

-- One row per task, updated in place. The states are compared one by one because IN (…) with more than two
-- values builds a table at every check, which cost 2 of 20 microseconds a task.
CREATE TABLE windlass_task (
    id TEXT NOT NULL UNIQUE,
    type TEXT NOT NULL,
    payload BLOB NOT NULL,
    root TEXT NOT NULL,
    queue TEXT NOT NULL,
    tenant TEXT NOT NULL,
    priority INTEGER NOT NULL,
    boost INTEGER NOT NULL,
    state TEXT NOT NULL CHECK (
        state = 'ready' OR state = 'running' OR state = 'completed' OR state = 'scheduled'
        OR state = 'waiting' OR state = 'cancelled' OR state = 'dead'
    ),
    attempt INTEGER NOT NULL,
    max_attempts INTEGER NOT NULL,
    fence INTEGER NOT NULL,
    run_at INTEGER NOT NULL,
    rank INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    claimed_at INTEGER,
    finished_at INTEGER,
    timeout INTEGER,
    session TEXT,
    claim_number INTEGER,
    worker TEXT,
    duration REAL,
    outcome TEXT,
    cancel_requested INTEGER NOT NULL DEFAULT 0,
    progress_fraction REAL,
    progress_message TEXT,
    result BLOB,
    error_type TEXT,
    error_message TEXT,
    error_traceback TEXT,
    idempotency_key TEXT,
    fingerprint TEXT,
    next BLOB,
    after TEXT,
    result_into TEXT,
    secret TEXT,
    trace TEXT,
    enqueued_by TEXT NOT NULL
);

-- Claims: a queue's ready tasks in order.
CREATE INDEX windlass_task_ready ON windlass_task (queue, rank, id) WHERE state = 'ready';

-- Promotion: scheduled tasks, earliest first.
CREATE INDEX windlass_task_scheduled ON windlass_task (run_at, id) WHERE state = 'scheduled';

-- Heartbeats and rescues: the tasks of a session.
CREATE INDEX windlass_task_running ON windlass_task (session) WHERE state = 'running';

-- Pruning: ended tasks by age. Only ended tasks have a finished_at.
CREATE INDEX windlass_task_ended ON windlass_task (queue, state, finished_at) WHERE finished_at IS NOT NULL;

-- Dead letters, which people page through.
CREATE INDEX windlass_task_dead ON windlass_task (id) WHERE state = 'dead';

-- At most one unfinished task per fingerprint.
CREATE UNIQUE INDEX windlass_task_fingerprint ON windlass_task (fingerprint)
WHERE fingerprint IS NOT NULL AND finished_at IS NULL;

-- Chains and groups. A task that is its own root is found by its id.
CREATE INDEX windlass_task_root ON windlass_task (root) WHERE root <> id;

CREATE INDEX windlass_task_key ON windlass_task (idempotency_key) WHERE idempotency_key IS NOT NULL;

-- One task per tenant and key. until NULL: for as long as the task's row is kept.
CREATE TABLE windlass_idempotency (
    tenant TEXT NOT NULL,
    key TEXT NOT NULL,
    task_id TEXT NOT NULL,
    digest TEXT NOT NULL,
    until INTEGER,
    PRIMARY KEY (tenant, key)
) WITHOUT ROWID;

CREATE INDEX windlass_idempotency_until ON windlass_idempotency (until) WHERE until IS NOT NULL;

-- The predecessors of waiting tasks; rows exist while the successor is waiting.
CREATE TABLE windlass_dependency (
    predecessor TEXT NOT NULL,
    successor TEXT NOT NULL,
    PRIMARY KEY (predecessor, successor)
) WITHOUT ROWID;

CREATE INDEX windlass_dependency_successor ON windlass_dependency (successor);

-- One row per settled lease, except a completed task's last one, which its own row describes.
CREATE TABLE windlass_attempt (
    task_id TEXT NOT NULL,
    fence INTEGER NOT NULL,
    number INTEGER NOT NULL,
    worker TEXT,
    claimed_at INTEGER NOT NULL,
    finished_at INTEGER NOT NULL,
    duration REAL NOT NULL,
    outcome TEXT NOT NULL,
    error_type TEXT,
    error_message TEXT,
    error_traceback TEXT,
    trace TEXT,
    PRIMARY KEY (task_id, fence)
) WITHOUT ROWID;

-- One row per start of a worker; about is the worker's description of itself, as JSON.
CREATE TABLE windlass_session (
    id TEXT NOT NULL PRIMARY KEY,
    worker TEXT NOT NULL,
    about TEXT NOT NULL,
    started_at INTEGER NOT NULL,
    beat_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL
) WITHOUT ROWID;

-- A queue's settings as JSON, with a separate column for the one that claims need.
CREATE TABLE windlass_queue (
    name TEXT NOT NULL PRIMARY KEY,
    paused INTEGER NOT NULL,
    settings TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE windlass_audit (
    id TEXT NOT NULL PRIMARY KEY,
    at INTEGER NOT NULL,
    who TEXT NOT NULL,
    why TEXT NOT NULL,
    action TEXT NOT NULL,
    task_id TEXT NOT NULL,
    detail TEXT NOT NULL
) WITHOUT ROWID;

-- At most one row: who leads, and until when.
CREATE TABLE windlass_lead (
    only INTEGER NOT NULL PRIMARY KEY CHECK (only = 1),
    holder TEXT NOT NULL,
    until INTEGER NOT NULL
);
