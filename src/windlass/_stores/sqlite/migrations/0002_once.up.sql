-- What a task has marked as done once, over all its attempts, and under which fence. (D15)
-- A table of its own: few tasks have any, and a row goes when its task does.
CREATE TABLE windlass_once (
    task_id TEXT NOT NULL,
    key TEXT NOT NULL,
    fence INTEGER NOT NULL,
    PRIMARY KEY (task_id, key)
) WITHOUT ROWID;
