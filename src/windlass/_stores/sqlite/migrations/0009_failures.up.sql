-- The fingerprint of a task's error, by which failed tasks are grouped. Dead letters of older versions have none.
ALTER TABLE windlass_task ADD COLUMN failure TEXT;

-- The dead letters of one failure, which people page through.
CREATE INDEX windlass_task_failure ON windlass_task (failure, id, state, run_at, created_at) WHERE state = 'dead';

-- Dead letters are counted by it without reading them, and without sorting.
CREATE INDEX windlass_task_dead_count ON windlass_task (queue, type, failure, tenant, state, run_at, created_at)
WHERE state = 'dead';
