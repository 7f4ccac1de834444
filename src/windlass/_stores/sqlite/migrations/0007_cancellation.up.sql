-- Tasks that never start after an instant, and who cancelled a task and why.
ALTER TABLE windlass_task ADD COLUMN expires_at INTEGER;
ALTER TABLE windlass_task ADD COLUMN cancelled_by TEXT;
ALTER TABLE windlass_task ADD COLUMN cancel_reason TEXT;

-- Expiry: tasks that have not started, by when they expire. Other tasks are not in it.
CREATE INDEX windlass_task_expiring ON windlass_task (expires_at)
WHERE expires_at IS NOT NULL AND attempt = 0 AND finished_at IS NULL;
