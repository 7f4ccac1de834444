-- A record of a kind. Uses the primary key.
SELECT body
FROM windlass_record
WHERE kind = :kind AND name = :name
