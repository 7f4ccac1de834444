-- A queue's settings, locked.
SELECT q.settings
FROM windlass.queue AS q
WHERE q.name = $1
FOR UPDATE
