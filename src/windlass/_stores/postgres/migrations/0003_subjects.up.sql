-- phase: before
-- The audit log also covers queues, limits, schedules, alerts and keys: subject names the record, and task_id is NULL.
-- Neither change rewrites rows. The previous version can still write entries about tasks.
ALTER TABLE windlass.audit ALTER COLUMN task_id DROP NOT NULL;
ALTER TABLE windlass.audit ADD COLUMN subject text NOT NULL DEFAULT '';
