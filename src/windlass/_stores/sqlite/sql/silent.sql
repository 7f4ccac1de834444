-- Running tasks whose session has expired. Covered by windlass_task_running, one row per running task, with the
-- primary key of the sessions.
SELECT rowid
FROM windlass_task AS task
WHERE
    task.state = 'running'
    AND NOT EXISTS (
        SELECT 1
        FROM windlass_session AS session
        WHERE session.id = task.session AND session.expires_at > :now
    )
LIMIT :limit
