-- Delete dead tasks.
DELETE FROM windlass.task AS t
WHERE t.id = ANY ($1::uuid[]) AND t.state IS NOT DISTINCT FROM 'dead'
