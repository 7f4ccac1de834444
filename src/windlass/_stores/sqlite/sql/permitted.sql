-- The permits of these running tasks. One lookup in the unique index on id per task.
SELECT task.permits
FROM json_each(:ids) AS given
CROSS JOIN windlass_task AS task ON task.id = given.value
WHERE task.state = 'running' AND task.permits IS NOT NULL
