-- phase: before
-- The audit log tells of queues, limits, schedules, alerts and keys too: subject names which, and there is no task.
-- (I3) Neither change touches a row. Code of before goes on to write lines about tasks.
ALTER TABLE windlass.audit ALTER COLUMN task_id DROP NOT NULL;
ALTER TABLE windlass.audit ADD COLUMN subject text NOT NULL DEFAULT '';
