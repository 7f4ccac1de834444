-- Scheduled tasks that are due, earliest first. Uses windlass_task_scheduled.
SELECT rowid, queue, priority, boost
FROM windlass_task
WHERE state = 'scheduled' AND run_at <= :now
ORDER BY run_at, id
LIMIT :limit
