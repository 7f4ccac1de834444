-- Those of these tasks that have ended or are not stored: completed and cancelled ones have left the table.
SELECT asked.id::text
FROM unnest($1::uuid[]) AS asked (id)
LEFT JOIN windlass.task AS t ON t.id = asked.id
WHERE t.id IS NULL OR t.state = 'dead'
