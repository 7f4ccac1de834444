-- When the next scheduled task is due. Uses windlass_task_scheduled.
SELECT run_at
FROM windlass_task
WHERE state = 'scheduled'
ORDER BY run_at
LIMIT 1
