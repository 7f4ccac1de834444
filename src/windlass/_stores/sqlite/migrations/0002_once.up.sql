-- The keys that a task has marked with ctx.once() in any attempt, each with its fence.
-- A separate table, as few tasks have any. Rows are deleted with their task.
CREATE TABLE windlass_once (
    task_id TEXT NOT NULL,
    key TEXT NOT NULL,
    fence INTEGER NOT NULL,
    PRIMARY KEY (task_id, key)
) WITHOUT ROWID;
