-- Pruning: ended tasks by age, of each type as well, because types may have a retention of their own.
DROP INDEX windlass_task_ended;
CREATE INDEX windlass_task_ended ON windlass_task (queue, type, state, finished_at) WHERE finished_at IS NOT NULL;
