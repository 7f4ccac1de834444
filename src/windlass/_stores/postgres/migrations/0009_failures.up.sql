-- phase: before
-- The fingerprint of a task's error, by which failed tasks are grouped; always NULL in the history, whose tasks did not
-- fail in the end. Adding the columns rewrites no row; older code ignores them, and its dead letters have none.
ALTER TABLE windlass.task ADD COLUMN failure text;
ALTER TABLE windlass.history ADD COLUMN failure text;

-- The dead letters of one failure, which people page through.
CREATE INDEX task_failure ON windlass.task (failure, id) WHERE state = 'dead';
