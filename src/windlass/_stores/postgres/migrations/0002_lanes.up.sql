-- Who runs next: lanes within a queue, limits, and records that are nothing but kept. (F2-F5, T1-T5, L4)
-- lane: whose turn it may be; key: what limits tell apart. NULL in a queue that is one line, or several stripes;
-- a task with a lane is in stripe -1, which no other task is in.
ALTER TABLE windlass.task ADD COLUMN lane text COLLATE "C";
ALTER TABLE windlass.task ADD COLUMN key text COLLATE "C";
-- It counts for limits while it runs: there are permits of it, and its end may let others start.
ALTER TABLE windlass.task ADD COLUMN limited boolean NOT NULL DEFAULT false;

-- Claims: the ready tasks of a queue's lane and key in order.
CREATE INDEX task_lane ON windlass.task (queue, lane, key, rank, id) WHERE state = 'ready' AND lane IS NOT NULL;

-- Claims for one level of priority alone.
CREATE INDEX task_high ON windlass.task (queue, rank, id) WHERE state = 'ready' AND priority > 0;
CREATE INDEX task_low ON windlass.task (queue, rank, id) WHERE state = 'ready' AND priority < 0;

-- laned: its tasks have lanes, or had until a moment ago (laned_at: when that was last so). guarded: a limit
-- applies to them, so that only a claim that counts may take any. unsettled: they are being put into other lanes,
-- or somebody who was at it died. The queue '' stands for all of them.
ALTER TABLE windlass.queue ADD COLUMN laned boolean NOT NULL DEFAULT false;
ALTER TABLE windlass.queue ADD COLUMN laned_at timestamptz;
ALTER TABLE windlass.queue ADD COLUMN guarded boolean NOT NULL DEFAULT false;
ALTER TABLE windlass.queue ADD COLUMN unsettled boolean NOT NULL DEFAULT false;

-- Who holds what of which limit. Only an index: a row counts while its task runs by the claim of that instant,
-- and goes when the next claim for the same key sees that it does not. So nothing can leak.
CREATE TABLE windlass.permit (
    key text COLLATE "C" NOT NULL,
    task_id uuid NOT NULL,
    at timestamptz NOT NULL,
    PRIMARY KEY (key, task_id)
) WITH (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0
);

-- One row a key that a limit tells apart: whoever claims for it locks this first. And the starts that are left.
CREATE TABLE windlass.bucket (
    key text COLLATE "C" PRIMARY KEY,
    tokens double precision,
    at timestamptz NOT NULL
) WITH (
    fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0
);

-- Limits, schedules, alerts and their like, as JSON.
CREATE TABLE windlass.record (
    kind text NOT NULL,
    name text COLLATE "C" NOT NULL,
    body text NOT NULL,
    PRIMARY KEY (kind, name)
);
