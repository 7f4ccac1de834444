-- One record, locked.
SELECT r.body
FROM windlass.record AS r
WHERE r.kind = $1 AND r.name = $2
FOR UPDATE
