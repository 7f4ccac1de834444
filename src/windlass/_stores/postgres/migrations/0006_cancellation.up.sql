-- phase: before
-- Tasks that never start after an instant, and who cancelled a task and why. Adding the columns rewrites no row;
-- older code ignores them.
ALTER TABLE windlass.task ADD COLUMN expires_at timestamptz;
ALTER TABLE windlass.task ADD COLUMN cancelled_by text;
ALTER TABLE windlass.task ADD COLUMN cancel_reason text;
ALTER TABLE windlass.history ADD COLUMN expires_at timestamptz;
ALTER TABLE windlass.history ADD COLUMN cancelled_by text;
ALTER TABLE windlass.history ADD COLUMN cancel_reason text;

-- Expiry: tasks that have not started, by when they expire. Other tasks are not in it.
CREATE INDEX task_expiring ON windlass.task (expires_at)
WHERE expires_at IS NOT NULL AND attempt = 0 AND finished_at IS NULL;
