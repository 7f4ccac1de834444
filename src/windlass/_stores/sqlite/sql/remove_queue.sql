-- Delete a queue's settings. Uses the primary key.
DELETE FROM windlass_queue
WHERE name = :name
