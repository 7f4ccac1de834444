-- One record.
SELECT body
FROM windlass_record
WHERE kind = :kind AND name = :name
