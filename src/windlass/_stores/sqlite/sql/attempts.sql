-- The attempts of a task; a completed task's last attempt is in its own row, unless it was recorded with notes. Uses
-- the primary key and the unique index on id.
SELECT
    fence, number, worker, claimed_at, finished_at, duration, outcome, error_type, error_message, error_traceback,
    trace, notes
FROM windlass_attempt
WHERE task_id = :id
UNION ALL
SELECT fence, attempt, worker, claimed_at, finished_at, duration, outcome, NULL, NULL, NULL, trace, NULL
FROM windlass_task
WHERE
    id = :id AND state = 'completed'
    AND fence NOT IN (SELECT noted.fence FROM windlass_attempt AS noted WHERE noted.task_id = :id)
ORDER BY fence
