-- The settings of every queue that has any.
SELECT q.settings
FROM windlass.queue AS q
WHERE q.settings IS NOT NULL
ORDER BY q.name
