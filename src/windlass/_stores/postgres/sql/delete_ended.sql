-- Delete tasks in the history.
DELETE FROM windlass.history AS h
WHERE h.id = ANY ($1::uuid[])
