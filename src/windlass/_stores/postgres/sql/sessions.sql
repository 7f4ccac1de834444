-- Sessions, a page by id in the order of its bytes. There are few sessions: all are sorted.
SELECT id, about, started_at, beat_at, expires_at
FROM windlass.session
WHERE $1::text IS NULL OR id COLLATE "C" > $1
ORDER BY id COLLATE "C"
LIMIT $2
