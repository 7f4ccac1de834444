-- Tasks in the history with ids in a range.
SELECT h.id::text
FROM windlass.history AS h
WHERE h.id BETWEEN $1::uuid AND $2::uuid AND h.finished_at >= /* :since */
