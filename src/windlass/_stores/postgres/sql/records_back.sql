-- A page of records of a kind by name, last first. As records.sql.
SELECT body, name
FROM windlass.record
WHERE kind = $3 AND ($1::text IS NULL OR name < $1)
ORDER BY name DESC
LIMIT $2
