-- A page of sessions, in the byte order of their ids. Sessions are few, so all are sorted.
SELECT id, about, started_at, beat_at, expires_at
FROM windlass.session
WHERE $1::text IS NULL OR id COLLATE "C" > $1
ORDER BY id COLLATE "C"
LIMIT $2
