-- Lanes within a queue, limits, and records.
-- lane: the unit that takes turns (a tenant, a level); key: tasks with equal keys are limited alike. Both are NULL in a
-- queue without lanes. Tasks in lanes, and only those, have stripe -1.
ALTER TABLE windlass.task ADD COLUMN lane text COLLATE "C";
ALTER TABLE windlass.task ADD COLUMN key text COLLATE "C";
-- Whether it counts towards limits while it runs: it then has permits, and its end may let others start.
ALTER TABLE windlass.task ADD COLUMN limited boolean NOT NULL DEFAULT false;

-- Claims: the ready tasks of a queue's lane and key in order.
CREATE INDEX task_lane ON windlass.task (queue, lane, key, rank, id) WHERE state = 'ready' AND lane IS NOT NULL;

-- Claims for a single priority level.
CREATE INDEX task_high ON windlass.task (queue, rank, id) WHERE state = 'ready' AND priority > 0;
CREATE INDEX task_low ON windlass.task (queue, rank, id) WHERE state = 'ready' AND priority < 0;

-- laned: its tasks have lanes, or had until recently (laned_at: when they last needed them). guarded: a limit applies
-- to them, so only claims that count permits may take any. unsettled: they are being moved to other lanes, or the
-- process that moved them died. The queue '' stands for all queues.
ALTER TABLE windlass.queue ADD COLUMN laned boolean NOT NULL DEFAULT false;
ALTER TABLE windlass.queue ADD COLUMN laned_at timestamptz;
ALTER TABLE windlass.queue ADD COLUMN guarded boolean NOT NULL DEFAULT false;
ALTER TABLE windlass.queue ADD COLUMN unsettled boolean NOT NULL DEFAULT false;

-- The permits of running tasks. A row counts only while its task runs under the claim of that instant; the next claim
-- for the same key deletes it otherwise. So permits cannot leak.
CREATE TABLE windlass.permit (
    key text COLLATE "C" NOT NULL,
    task_id uuid NOT NULL,
    at timestamptz NOT NULL,
    PRIMARY KEY (key, task_id)
) WITH (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0
);

-- Token buckets, one row per key that a limit counts by: the starts that are left. A claim for the key first locks
-- its row.
CREATE TABLE windlass.bucket (
    key text COLLATE "C" PRIMARY KEY,
    tokens double precision,
    at timestamptz NOT NULL
) WITH (
    fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0
);

-- Limits, schedules, alerts and other records, as JSON.
CREATE TABLE windlass.record (
    kind text NOT NULL,
    name text COLLATE "C" NOT NULL,
    body text NOT NULL,
    PRIMARY KEY (kind, name)
);
