-- Who runs next: lanes within a queue, limits, and records that are nothing but kept. (F2-F5, T1-T5, L4)
-- lane: whose turn it may be; key: what limits tell apart. Both are '' in a queue that is one line, and of
-- tasks that are not ready: whatever makes one ready says where it belongs.
ALTER TABLE windlass_task ADD COLUMN lane TEXT NOT NULL DEFAULT '';
ALTER TABLE windlass_task ADD COLUMN key TEXT NOT NULL DEFAULT '';
-- What limits a running task counts for, as a JSON list of texts: the running row itself is the permit.
ALTER TABLE windlass_task ADD COLUMN permits TEXT;

-- Claims: the ready tasks of a queue's lane and key in order.
DROP INDEX windlass_task_ready;
CREATE INDEX windlass_task_ready ON windlass_task (queue, lane, key, rank, id) WHERE state = 'ready';

-- Claims for one level of priority alone. Most tasks are at nought and in no lane: those are read off the line
-- they stand in, and do not pay for this.
CREATE INDEX windlass_task_level ON windlass_task (queue, (priority > 0) - (priority < 0), rank, id)
WHERE state = 'ready' AND (priority <> 0 OR lane <> '' OR key <> '');

-- What counts for limits: read from beginning to end by every claim under limits, equal permits side by side.
CREATE INDEX windlass_task_limited ON windlass_task (permits) WHERE state = 'running' AND permits IS NOT NULL;

-- The starts that a limit with a rate has left, for each value it tells apart; at in microseconds.
CREATE TABLE windlass_bucket (
    key TEXT NOT NULL PRIMARY KEY,
    tokens REAL NOT NULL,
    at INTEGER NOT NULL
) WITHOUT ROWID;

-- Queues whose ready tasks are being put into other lanes, and after which of them that goes on.
CREATE TABLE windlass_rearranging (
    queue TEXT NOT NULL PRIMARY KEY,
    lane TEXT NOT NULL,
    key TEXT NOT NULL,
    rank INTEGER NOT NULL,
    id TEXT NOT NULL
) WITHOUT ROWID;

-- Limits, schedules, alerts and their like, as JSON.
CREATE TABLE windlass_record (
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (kind, name)
) WITHOUT ROWID;
