-- The audit log also covers queues, limits, schedules, alerts and keys: subject names the record, and task_id is ''.
ALTER TABLE windlass_audit ADD COLUMN subject TEXT NOT NULL DEFAULT '';
