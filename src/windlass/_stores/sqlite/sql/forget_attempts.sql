-- Delete the attempts of a task. Uses the primary key.
DELETE FROM windlass_attempt
WHERE task_id = :id
