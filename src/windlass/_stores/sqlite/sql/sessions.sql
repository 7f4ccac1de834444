-- A page of sessions by id. Uses the primary key.
SELECT id, about, started_at, beat_at, expires_at
FROM windlass_session
WHERE id > :after
ORDER BY id
LIMIT :limit
