-- Running tasks whose session is not alive. Uses windlass_task_running alone, a row a running task, and the
-- sessions' primary key.
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
