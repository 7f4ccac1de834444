-- A page of queue settings by name, last first. As queues.sql.
SELECT settings, name
FROM windlass.queue
WHERE settings IS NOT NULL AND ($1::text IS NULL OR name COLLATE "C" < $1)
ORDER BY name COLLATE "C" DESC
LIMIT $2
