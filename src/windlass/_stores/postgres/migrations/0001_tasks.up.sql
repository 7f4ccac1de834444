-- Tasks and what is kept beside them, in a schema of their own.
-- Here it is called windlass; a store with another `schema` in its URL has that name put in its place.
-- Instants are the database's. Payloads, results and steps are JSON as the client sent it, never looked into.
-- No triggers, no foreign keys, no GIN: they cost more than the queue itself.

-- Every task that has not ended, and dead letters. One row a task, updated in place when it moves and taken
-- out when it completes or is cancelled: what lies in here is work to do, whatever the store has seen.
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
    -- Whole milliseconds from 1970 to run_at, less the head start that the priority buys. Not a generated
    -- column: Postgres would take its expression apart anew for every row of every update.
    rank bigint NOT NULL,
    duration double precision,
    progress_fraction double precision,
    timeout interval,
    priority integer NOT NULL,
    attempt integer NOT NULL DEFAULT 0,
    max_attempts integer NOT NULL,
    stripe smallint NOT NULL DEFAULT 0,
    cancel_requested boolean NOT NULL DEFAULT false,
    -- Another task waits for this one: completing it takes more than the quick way.
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

-- Claims: a queue's ready tasks in order, and nothing else.
CREATE INDEX task_ready ON windlass.task (queue, stripe, rank, id) WHERE state = 'ready';

-- Promotion: what is due first.
CREATE INDEX task_scheduled ON windlass.task (run_at, id) WHERE state = 'scheduled';

-- Heartbeats and rescues: what a session holds.
CREATE INDEX task_running ON windlass.task (session) WHERE state = 'running';

-- Dead letters, which people page through; and their retention.
CREATE INDEX task_dead ON windlass.task (id) WHERE state = 'dead';
CREATE INDEX task_ended ON windlass.task (finished_at) WHERE state = 'dead';

-- Tasks that wait for others.
CREATE INDEX task_waiting ON windlass.task (id) WHERE state = 'waiting';

-- One standing task a fingerprint.
CREATE UNIQUE INDEX task_fingerprint ON windlass.task (fingerprint)
WHERE fingerprint IS NOT NULL AND finished_at IS NULL;

-- Chains and groups. A task that is its own root is found by its id.
CREATE INDEX task_root ON windlass.task (root) WHERE root <> id;
CREATE INDEX task_key ON windlass.task (idempotency_key) WHERE idempotency_key IS NOT NULL;

-- What completed or was cancelled: only added to, and dropped a day at a time, never vacuumed.
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
-- Rows come in this order, so that an index of a few pages tells where an hour lies.
CREATE INDEX history_finished ON windlass.history USING brin (finished_at);
CREATE INDEX history_root ON windlass.history (root) WHERE root <> id;
CREATE INDEX history_key ON windlass.history (idempotency_key) WHERE idempotency_key IS NOT NULL;

-- Where rows go that no day's partition takes: for want of one, or in a test with a clock of its own.
CREATE TABLE windlass.history_rest PARTITION OF windlass.history DEFAULT;

-- One task a tenant and key. until NULL: for as long as the task's record is kept.
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

-- What a waiting task waits for; there are rows for as long as the successor is waiting.
CREATE TABLE windlass.dependency (
    predecessor uuid NOT NULL,
    successor uuid NOT NULL,
    PRIMARY KEY (predecessor, successor)
);
CREATE INDEX dependency_successor ON windlass.dependency (successor);

-- One line a settled lease, but for a completed task's last one: its own record says it all.
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

-- One row a start of a worker; about is how it describes itself, as JSON. Room in each page, and no index on
-- what a heartbeat changes: so it changes in place.
CREATE TABLE windlass.session (
    id text PRIMARY KEY,
    worker text NOT NULL,
    about text NOT NULL,
    started_at timestamptz NOT NULL,
    beat_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- Who waits for a wake: while nobody does, enqueueing notifies nobody. Not logged: after a crash they ask again.
CREATE UNLOGGED TABLE windlass.listener (
    id text PRIMARY KEY,
    queues text[] NOT NULL,
    until timestamptz NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- A queue's settings as JSON, and beside them what claims ask for. widest: how many stripes it has ever had.
-- No settings: they were forgotten, and only the stripes are remembered.
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
