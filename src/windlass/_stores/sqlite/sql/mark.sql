-- Mark a key on a task if the lease is valid and the key is not marked yet. Uses the unique index on id.
INSERT INTO windlass_once (task_id, key, fence)
SELECT task.id, :key, task.fence
FROM windlass_task AS task
WHERE task.id = :id AND task.fence = :fence AND task.state = 'running'
ON CONFLICT (task_id, key) DO NOTHING
