-- A page of queue settings by name, last first. Uses the primary key.
SELECT settings, name
FROM windlass_queue
WHERE :before IS NULL OR name < :before
ORDER BY name DESC
LIMIT :limit
