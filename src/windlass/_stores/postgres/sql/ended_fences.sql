-- The fences of tasks in the history.
SELECT h.id::text, h.fence
FROM windlass.history AS h
WHERE h.id = ANY ($1::uuid[])
