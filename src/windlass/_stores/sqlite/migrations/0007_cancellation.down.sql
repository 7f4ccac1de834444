DROP INDEX windlass_task_expiring;
ALTER TABLE windlass_task DROP COLUMN expires_at;
ALTER TABLE windlass_task DROP COLUMN cancelled_by;
ALTER TABLE windlass_task DROP COLUMN cancel_reason;
