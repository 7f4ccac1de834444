-- The permits that these running tasks have. Uses the unique index on id, once an id.
SELECT task.permits
FROM json_each(:ids) AS given
CROSS JOIN windlass_task AS task ON task.id = given.value
WHERE task.state = 'running' AND task.permits IS NOT NULL
