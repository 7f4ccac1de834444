-- Those of these tasks that have ended or are not stored. Uses the unique index on id.
SELECT asked.value
FROM json_each(:ids) AS asked
LEFT JOIN windlass_task AS task ON task.id = asked.value
WHERE task.id IS NULL OR task.finished_at IS NOT NULL
