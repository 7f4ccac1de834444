-- Tasks in the history with ids from one to another.
SELECT h.id::text
FROM windlass.history AS h
WHERE h.id BETWEEN $1::uuid AND $2::uuid AND h.finished_at >= /* :since */
