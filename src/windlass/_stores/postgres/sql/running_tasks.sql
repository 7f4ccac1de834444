-- All running tasks with what limits depend on. In the order of task_running; by id the planner might read all
-- tasks.
SELECT t.id::text, t.queue, t.type, t.tenant, t.payload, t.claimed_at
FROM windlass.task AS t
WHERE t.state = 'running'
ORDER BY t.session
