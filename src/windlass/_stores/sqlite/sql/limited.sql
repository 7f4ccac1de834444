-- What runs under limits: each list of permits, and how many tasks have it. Uses windlass_task_limited alone.
SELECT permits, count(*)
FROM windlass_task
WHERE state = 'running' AND permits IS NOT NULL
GROUP BY permits
