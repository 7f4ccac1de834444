-- Tasks and the tables that belong to them, in their own schema.
-- It is called windlass here; for a store with another `schema` in its URL that name is substituted.
-- Instants are by the database's clock. Payloads, results and steps are JSON as the client sent it, never parsed.
-- No triggers, no foreign keys, no GIN: they cost more than the queue itself.

-- Every task that has not ended, and dead letters. One row per task, updated in place, and moved to the history when
-- it completes or is cancelled: the size of this table depends on the work to do, not on all past tasks.
CREATE TABLE windlass.task (
    id uuid PRIMARY KEY,
    root uuid NOT NULL,
    run_at timestamptz NOT NULL,
    created_at timestamptz NOT NULL,
    claimed_at timestamptz,
    finished_at timestamptz,
    boost bigint NOT NULL,
    fence bigint NOT NULL DEFAULT 0,
    claim_number bigint,
    -- Whole milliseconds from 1970 to run_at, minus the head start of the priority. Not a generated column:
    -- Postgres would set up its expression again for every row of every update.
    rank bigint NOT NULL,
    duration double precision,
    progress_fraction double precision,
    timeout interval,
    priority integer NOT NULL,
    attempt integer NOT NULL DEFAULT 0,
    max_attempts integer NOT NULL,
    stripe smallint NOT NULL DEFAULT 0,
    cancel_requested boolean NOT NULL DEFAULT false,
    -- Another task waits for this one, so it cannot be completed by the hot path.
    awaited boolean NOT NULL DEFAULT false,
    state text NOT NULL CHECK (state IN ('ready', 'running', 'scheduled', 'waiting', 'dead')),
    type text NOT NULL,
    queue text NOT NULL,
    tenant text NOT NULL,
    payload bytea NOT NULL,
    session text,
    worker text,
    outcome text,
    progress_message text,
    result bytea,
    error_type text,
    error_message text,
    error_traceback text,
    idempotency_key text,
    fingerprint text,
    next bytea,
    after text,
    result_into text,
    secret text,
    trace text,
    enqueued_by text NOT NULL,
    once jsonb
) WITH (
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 20000,
    autovacuum_vacuum_insert_scale_factor = 0.2,
    autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0.2,
    autovacuum_analyze_threshold = 20000
);

-- Claims: a queue's ready tasks in order.
CREATE INDEX task_ready ON windlass.task (queue, stripe, rank, id) WHERE state = 'ready';

-- Promotion: scheduled tasks, earliest first.
CREATE INDEX task_scheduled ON windlass.task (run_at, id) WHERE state = 'scheduled';

-- Heartbeats and rescues: the tasks of a session.
CREATE INDEX task_running ON windlass.task (session) WHERE state = 'running';

-- Dead letters, which people page through; and their retention.
CREATE INDEX task_dead ON windlass.task (id) WHERE state = 'dead';
CREATE INDEX task_ended ON windlass.task (finished_at) WHERE state = 'dead';

-- Tasks that wait for others.
CREATE INDEX task_waiting ON windlass.task (id) WHERE state = 'waiting';

-- At most one unfinished task per fingerprint.
CREATE UNIQUE INDEX task_fingerprint ON windlass.task (fingerprint)
WHERE fingerprint IS NOT NULL AND finished_at IS NULL;

-- Chains and groups. A task that is its own root is found by its id.
CREATE INDEX task_root ON windlass.task (root) WHERE root <> id;
CREATE INDEX task_key ON windlass.task (idempotency_key) WHERE idempotency_key IS NOT NULL;

-- Completed and cancelled tasks: insert-only, dropped by daily partition, never vacuumed.
CREATE TABLE windlass.history (
    id uuid NOT NULL,
    root uuid NOT NULL,
    run_at timestamptz NOT NULL,
    created_at timestamptz NOT NULL,
    claimed_at timestamptz,
    finished_at timestamptz NOT NULL,
    boost bigint NOT NULL,
    fence bigint NOT NULL,
    duration double precision,
    progress_fraction double precision,
    timeout interval,
    priority integer NOT NULL,
    attempt integer NOT NULL,
    max_attempts integer NOT NULL,
    cancel_requested boolean NOT NULL,
    state text NOT NULL,
    type text NOT NULL,
    queue text NOT NULL,
    tenant text NOT NULL,
    payload bytea NOT NULL,
    worker text,
    outcome text,
    progress_message text,
    result bytea,
    error_type text,
    error_message text,
    error_traceback text,
    idempotency_key text,
    fingerprint text,
    next bytea,
    after text,
    result_into text,
    secret text,
    trace text,
    enqueued_by text NOT NULL,
    once jsonb
) PARTITION BY RANGE (finished_at);

CREATE INDEX history_id ON windlass.history (id);
-- Rows are inserted in this order, so a BRIN index of a few pages finds the blocks of an hour.
CREATE INDEX history_finished ON windlass.history USING brin (finished_at);
CREATE INDEX history_root ON windlass.history (root) WHERE root <> id;
CREATE INDEX history_key ON windlass.history (idempotency_key) WHERE idempotency_key IS NOT NULL;

-- The default partition, for rows that no day's partition takes: if it is missing, or in tests with their own clock.
CREATE TABLE windlass.history_rest PARTITION OF windlass.history DEFAULT;

-- One task per tenant and key. until NULL: for as long as the task's record is kept.
CREATE TABLE windlass.idempotency (
    tenant text NOT NULL,
    key text NOT NULL,
    task_id uuid NOT NULL,
    digest text NOT NULL,
    until timestamptz,
    PRIMARY KEY (tenant, key)
);
CREATE INDEX idempotency_task ON windlass.idempotency (task_id) WHERE until IS NULL;
CREATE INDEX idempotency_until ON windlass.idempotency (until) WHERE until IS NOT NULL;

-- The predecessors of waiting tasks; rows exist while the successor is waiting.
CREATE TABLE windlass.dependency (
    predecessor uuid NOT NULL,
    successor uuid NOT NULL,
    PRIMARY KEY (predecessor, successor)
);
CREATE INDEX dependency_successor ON windlass.dependency (successor);

-- One row per settled lease, except a completed task's last one, which its own row describes.
CREATE TABLE windlass.attempt (
    task_id uuid NOT NULL,
    fence bigint NOT NULL,
    number integer NOT NULL,
    worker text,
    claimed_at timestamptz NOT NULL,
    finished_at timestamptz NOT NULL,
    duration double precision NOT NULL,
    outcome text NOT NULL,
    error_type text,
    error_message text,
    error_traceback text,
    trace text,
    PRIMARY KEY (task_id, fence)
);

-- One row per start of a worker; about is the worker's description of itself, as JSON. A low fillfactor, and no
-- index on the columns that a heartbeat changes, allow HOT updates.
CREATE TABLE windlass.session (
    id text PRIMARY KEY,
    worker text NOT NULL,
    about text NOT NULL,
    started_at timestamptz NOT NULL,
    beat_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- Workers that wait for wake-ups: while there are none, enqueueing sends no NOTIFY. Unlogged, as workers register
-- again after a crash.
CREATE UNLOGGED TABLE windlass.listener (
    id text PRIMARY KEY,
    queues text[] NOT NULL,
    until timestamptz NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- A queue's settings as JSON, with separate columns for what claims need. widest: the most stripes it has ever had.
-- Without settings: they were removed, and only the stripes are kept.
CREATE TABLE windlass.queue (
    name text PRIMARY KEY,
    paused boolean NOT NULL,
    stripes integer NOT NULL,
    widest integer NOT NULL,
    settings text
);

CREATE TABLE windlass.audit (
    id uuid PRIMARY KEY,
    at timestamptz NOT NULL,
    who text NOT NULL,
    why text NOT NULL,
    action text NOT NULL,
    task_id uuid NOT NULL,
    detail text NOT NULL
);

-- At most one row: who leads, and until when.
CREATE TABLE windlass.lead (
    single integer PRIMARY KEY CHECK (single = 1),
    holder text NOT NULL,
    until timestamptz NOT NULL
) WITH (fillfactor = 50);
