-- Records in the history go.
DELETE FROM windlass.history AS h
WHERE h.id = ANY ($1::uuid[])
