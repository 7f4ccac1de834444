-- Delete the keys that a task has marked. Uses the primary key.
DELETE FROM windlass_once
WHERE task_id = :id
