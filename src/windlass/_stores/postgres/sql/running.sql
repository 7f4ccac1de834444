-- All that runs, as limits see it. In the order of task_running: by id the planner may go through all tasks.
SELECT t.id::text, t.queue, t.type, t.tenant, t.payload, t.claimed_at
FROM windlass.task AS t
WHERE t.state = 'running'
ORDER BY t.session
