-- Cancelled tasks by id, locked in that order.
SELECT /* :history_columns */
FROM windlass.history AS h
WHERE h.id = ANY ($1::uuid[]) AND h.state = 'cancelled'
ORDER BY h.id
FOR UPDATE
