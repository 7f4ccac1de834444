DROP INDEX windlass.task_expiring;
ALTER TABLE windlass.task DROP COLUMN expires_at;
ALTER TABLE windlass.task DROP COLUMN cancelled_by;
ALTER TABLE windlass.task DROP COLUMN cancel_reason;
ALTER TABLE windlass.history DROP COLUMN expires_at;
ALTER TABLE windlass.history DROP COLUMN cancelled_by;
ALTER TABLE windlass.history DROP COLUMN cancel_reason;
