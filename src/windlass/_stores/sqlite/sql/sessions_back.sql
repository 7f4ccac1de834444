-- A page of sessions by id, last first. Uses the primary key.
SELECT id, about, started_at, beat_at, expires_at
FROM windlass_session
WHERE :before IS NULL OR id < :before
ORDER BY id DESC
LIMIT :limit
