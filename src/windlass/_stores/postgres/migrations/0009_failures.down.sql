DROP INDEX windlass.task_failure;
ALTER TABLE windlass.task DROP COLUMN failure;
ALTER TABLE windlass.history DROP COLUMN failure;
