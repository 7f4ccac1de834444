-- A page of sessions by id, last first. As sessions.sql.
SELECT id, about, started_at, beat_at, expires_at
FROM windlass.session
WHERE $1::text IS NULL OR id COLLATE "C" < $1
ORDER BY id COLLATE "C" DESC
LIMIT $2
