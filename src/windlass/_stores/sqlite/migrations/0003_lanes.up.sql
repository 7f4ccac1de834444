-- Lanes within a queue, limits, and records.
-- lane: the unit that takes turns (a tenant, a level); key: tasks with equal keys are limited alike. Both are '' in a
-- queue without lanes and for tasks that are not ready: they are set when a task becomes ready.
ALTER TABLE windlass_task ADD COLUMN lane TEXT NOT NULL DEFAULT '';
ALTER TABLE windlass_task ADD COLUMN key TEXT NOT NULL DEFAULT '';
-- The limits that a running task counts towards, as a JSON list of texts: the running row itself is the permit.
ALTER TABLE windlass_task ADD COLUMN permits TEXT;

-- Claims: the ready tasks of a queue's lane and key in order.
DROP INDEX windlass_task_ready;
CREATE INDEX windlass_task_ready ON windlass_task (queue, lane, key, rank, id) WHERE state = 'ready';

-- Claims for a single priority level. Most tasks have priority 0 and no lane: they are found by
-- windlass_task_ready, and do not pay for this index.
CREATE INDEX windlass_task_level ON windlass_task (queue, (priority > 0) - (priority < 0), rank, id)
WHERE state = 'ready' AND (priority <> 0 OR lane <> '' OR key <> '');

-- Running tasks that limits count: every claim under limits scans it, with equal permits grouped.
CREATE INDEX windlass_task_limited ON windlass_task (permits) WHERE state = 'running' AND permits IS NOT NULL;

-- Token buckets: the starts that a rate limit has left for each value it counts by; at is in microseconds.
CREATE TABLE windlass_bucket (
    key TEXT NOT NULL PRIMARY KEY,
    tokens REAL NOT NULL,
    at INTEGER NOT NULL
) WITHOUT ROWID;

-- Queues whose ready tasks are being moved to other lanes, and the last task moved.
CREATE TABLE windlass_rearranging (
    queue TEXT NOT NULL PRIMARY KEY,
    lane TEXT NOT NULL,
    key TEXT NOT NULL,
    rank INTEGER NOT NULL,
    id TEXT NOT NULL
) WITHOUT ROWID;

-- Limits, schedules, alerts and other records, as JSON.
CREATE TABLE windlass_record (
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (kind, name)
) WITHOUT ROWID;
