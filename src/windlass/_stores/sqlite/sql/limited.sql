-- The running tasks that limits count: each list of permits, with the number of tasks that have it. Covered by
-- windlass_task_limited.
SELECT permits, count(*)
FROM windlass_task
WHERE state = 'running' AND permits IS NOT NULL
GROUP BY permits
