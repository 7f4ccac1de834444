-- The states of tasks, wherever they are.
SELECT t.id::text, t.state
FROM windlass.task AS t
WHERE t.id = ANY ($1::uuid[])
UNION ALL
SELECT h.id::text, h.state
FROM windlass.history AS h
WHERE h.id = ANY ($1::uuid[])
