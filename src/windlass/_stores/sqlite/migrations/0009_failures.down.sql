DROP INDEX windlass_task_dead_count;
DROP INDEX windlass_task_failure;
ALTER TABLE windlass_task DROP COLUMN failure;
