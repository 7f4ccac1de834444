-- Delete a task. Uses the unique index on id.
DELETE FROM windlass_task
WHERE id = :id
