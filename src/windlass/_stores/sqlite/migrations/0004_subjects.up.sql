-- The audit log tells of queues, limits, schedules, alerts and keys too: subject names which, and task_id is ''. (I3)
ALTER TABLE windlass_audit ADD COLUMN subject TEXT NOT NULL DEFAULT '';
