-- A page of queue settings by name. Uses the primary key.
SELECT settings, name
FROM windlass_queue
WHERE name > :after
ORDER BY name
LIMIT :limit
