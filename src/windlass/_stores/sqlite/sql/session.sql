-- The name of the worker of a session that is alive. Uses the primary key.
SELECT worker
FROM windlass_session
WHERE id = :session AND expires_at > :now
