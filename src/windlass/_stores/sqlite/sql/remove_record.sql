-- Delete a record. Uses the primary key.
DELETE FROM windlass_record WHERE kind = :kind AND name = :name
