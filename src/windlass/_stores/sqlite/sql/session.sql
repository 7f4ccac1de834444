-- The name of a session's worker if the session is alive. Uses the primary key.
SELECT worker
FROM windlass_session
WHERE id = :session AND expires_at > :now
