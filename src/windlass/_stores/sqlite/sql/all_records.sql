-- All records of a kind, by name. Uses the primary key.
SELECT body FROM windlass_record WHERE kind = :kind ORDER BY name
