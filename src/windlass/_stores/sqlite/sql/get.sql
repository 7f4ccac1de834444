-- One whole task. Uses the unique index on id.
SELECT /* :task_columns */
FROM windlass_task AS task
WHERE task.id = :id
