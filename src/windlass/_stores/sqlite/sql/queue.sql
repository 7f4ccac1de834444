-- The settings of a queue. Uses the primary key.
SELECT settings
FROM windlass_queue
WHERE name = :name
