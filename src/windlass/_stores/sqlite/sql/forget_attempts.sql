-- Delete the lines of a task's attempts. Uses the primary key.
DELETE FROM windlass_attempt
WHERE task_id = :id
