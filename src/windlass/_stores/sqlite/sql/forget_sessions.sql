-- Delete expired sessions that hold no tasks. One lookup in windlass_task_running per session.
DELETE FROM windlass_session
WHERE
    expires_at <= :now
    AND NOT EXISTS (
        SELECT 1
        FROM windlass_task AS task
        WHERE task.session = windlass_session.id AND task.state = 'running'
    )
