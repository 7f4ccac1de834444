-- Who runs next: lanes within a queue, limits, and records that are nothing but kept. (F2-F5, T1-T5, L4)
-- lane: whose turn it may be; key: what limits tell apart. Both are '' in a queue that is one line.
ALTER TABLE windlass_task ADD COLUMN lane TEXT NOT NULL DEFAULT '';
ALTER TABLE windlass_task ADD COLUMN key TEXT NOT NULL DEFAULT '';
-- What limits a running task counts for, as a JSON list of texts: the running row itself is the permit.
ALTER TABLE windlass_task ADD COLUMN permits TEXT;

-- Claims: the ready tasks of a queue's lane and key in order.
DROP INDEX windlass_task_ready;
CREATE INDEX windlass_task_ready ON windlass_task (queue, lane, key, rank, id) WHERE state = 'ready';

-- Claims for one level of priority alone.
CREATE INDEX windlass_task_high ON windlass_task (queue, rank, id) WHERE state = 'ready' AND priority > 0;
CREATE INDEX windlass_task_low ON windlass_task (queue, rank, id) WHERE state = 'ready' AND priority < 0;

-- What counts for limits.
CREATE INDEX windlass_task_limited ON windlass_task (id) WHERE state = 'running' AND permits IS NOT NULL;

-- The starts that a limit with a rate has left, for each value it tells apart; at in microseconds.
CREATE TABLE windlass_bucket (
    key TEXT NOT NULL PRIMARY KEY,
    tokens REAL NOT NULL,
    at INTEGER NOT NULL
) WITHOUT ROWID;

-- Limits, schedules, alerts and their like, as JSON.
CREATE TABLE windlass_record (
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (kind, name)
) WITHOUT ROWID;
