-- Those of them that wait for something else: a predecessor that has not ended, or is dead, is in the table.
SELECT DISTINCT d.successor::text
FROM windlass.dependency AS d
INNER JOIN windlass.task AS t ON t.id = d.predecessor
WHERE d.successor = ANY ($1::uuid[])
