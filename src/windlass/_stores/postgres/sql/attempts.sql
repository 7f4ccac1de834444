-- The newest attempts of a task; a completed task's last attempt is in its own row, unless it was recorded with notes.
-- Uses the primary key and history_id.
SELECT *
FROM (
    SELECT
        a.fence, a.number, a.worker, a.claimed_at, a.finished_at, a.duration, a.outcome, a.error_type,
        a.error_message, a.error_traceback, a.trace, a.notes
    FROM windlass.attempt AS a
    WHERE a.task_id = $1
    UNION ALL
    SELECT
        h.fence, h.attempt, h.worker, h.claimed_at, h.finished_at, h.duration, h.outcome, NULL, NULL, NULL, h.trace,
        NULL
    FROM windlass.history AS h
    WHERE
        h.id = $1 AND h.state = 'completed'
        AND NOT EXISTS (SELECT FROM windlass.attempt AS noted WHERE noted.task_id = $1 AND noted.fence = h.fence)
) AS line
ORDER BY line.fence DESC
LIMIT $2
