-- Drop lanes and limits; no task is deleted.
DROP TABLE windlass_record;
DROP TABLE windlass_rearranging;
DROP TABLE windlass_bucket;
DROP INDEX windlass_task_limited;
DROP INDEX windlass_task_level;
DROP INDEX windlass_task_ready;
ALTER TABLE windlass_task DROP COLUMN permits;
ALTER TABLE windlass_task DROP COLUMN key;
ALTER TABLE windlass_task DROP COLUMN lane;
CREATE INDEX windlass_task_ready ON windlass_task (queue, rank, id) WHERE state = 'ready';
