-- The fingerprint of a task's error, by which failed tasks are grouped. Dead letters of older versions have none.
ALTER TABLE windlass_task ADD COLUMN failure TEXT;

-- The dead letters of one failure, which people page through; and the number of each, counted without reading tasks.
CREATE INDEX windlass_task_failure ON windlass_task (failure, id, state, type, queue, tenant, run_at, created_at)
WHERE state = 'dead';
