-- The tasks that wait for these, or need their results.
SELECT d.predecessor::text, d.successor::text
FROM windlass.dependency AS d
WHERE d.predecessor = ANY ($1::uuid[])
ORDER BY d.predecessor, d.successor
