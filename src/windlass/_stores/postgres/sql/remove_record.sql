-- Remove a record; a row means that there was one.
DELETE FROM windlass.record WHERE kind = $1 AND name = $2 RETURNING true
