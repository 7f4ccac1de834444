-- Remove a session; its tasks can be rescued.
DELETE FROM windlass.session AS s
WHERE s.id = $1
RETURNING s.id
