-- The fences of tasks that have ended.
SELECT h.id::text, h.fence
FROM windlass.history AS h
WHERE h.id = ANY ($1::uuid[])
