DROP INDEX windlass_task_ended;
CREATE INDEX windlass_task_ended ON windlass_task (queue, state, finished_at) WHERE finished_at IS NOT NULL;
