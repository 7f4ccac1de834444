-- A page of records of a kind by name, last first. Uses the primary key.
SELECT body, name
FROM windlass_record
WHERE kind = :kind AND (:before IS NULL OR name < :before)
ORDER BY name DESC
LIMIT :limit
