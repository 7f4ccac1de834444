-- Settings of queues, a page by name in the order of its bytes. There are few queues: all are sorted.
SELECT settings
FROM windlass.queue
WHERE settings IS NOT NULL AND ($1::text IS NULL OR name COLLATE "C" > $1)
ORDER BY name COLLATE "C"
LIMIT $2
