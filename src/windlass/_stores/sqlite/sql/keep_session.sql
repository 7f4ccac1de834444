-- Renew a session if it exists. Uses the primary key.
UPDATE windlass_session
SET worker = :worker, about = :about, beat_at = :now, expires_at = :expires_at
WHERE id = :session
