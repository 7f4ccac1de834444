-- A page of records of a kind, in the byte order of their names.
SELECT body, name
FROM windlass.record
WHERE kind = $3 AND ($1::text IS NULL OR name > $1)
ORDER BY name
LIMIT $2
