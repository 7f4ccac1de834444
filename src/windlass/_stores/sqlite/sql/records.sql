-- A page of records of a kind by name. Uses the primary key.
SELECT body, name
FROM windlass_record
WHERE kind = :kind AND name > :after
ORDER BY name
LIMIT :limit
