-- A task with all columns. Uses the unique index on id.
SELECT /* :task_columns */
FROM windlass_task AS task
WHERE task.id = :id
