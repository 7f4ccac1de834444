-- A page of queue settings, in the byte order of their names. Queues are few, so all are sorted.
SELECT settings, name
FROM windlass.queue
WHERE settings IS NOT NULL AND ($1::text IS NULL OR name COLLATE "C" > $1)
ORDER BY name COLLATE "C"
LIMIT $2
