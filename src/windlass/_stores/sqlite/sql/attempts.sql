-- The attempts of a task; a completed task's last attempt is in its own row. Uses the primary key and the unique
-- index on id.
SELECT
    fence, number, worker, claimed_at, finished_at, duration, outcome, error_type, error_message, error_traceback,
    trace
FROM windlass_attempt
WHERE task_id = :id
UNION ALL
SELECT fence, attempt, worker, claimed_at, finished_at, duration, outcome, NULL, NULL, NULL, trace
FROM windlass_task
WHERE id = :id AND state = 'completed'
ORDER BY fence
