-- Those of these tasks that wait for another one: a predecessor in the table has not ended, or is dead.
SELECT DISTINCT d.successor::text
FROM windlass.dependency AS d
INNER JOIN windlass.task AS t ON t.id = d.predecessor
WHERE d.successor = ANY ($1::uuid[])
