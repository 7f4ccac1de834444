-- A record by kind and name. Uses the primary key.
SELECT body
FROM windlass_record
WHERE kind = :kind AND name = :name
