-- Forget expired sessions that hold nothing. Uses windlass_task_running, once a session.
DELETE FROM windlass_session
WHERE
    expires_at <= :now
    AND NOT EXISTS (
        SELECT 1
        FROM windlass_task AS task
        WHERE task.session = windlass_session.id AND task.state = 'running'
    )
