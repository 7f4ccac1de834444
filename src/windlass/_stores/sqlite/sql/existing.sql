-- Those of these ids that exist, with their states. One lookup in the unique index on id per id.
SELECT task.id, task.state
FROM json_each(:ids) AS given
CROSS JOIN windlass_task AS task ON task.id = given.value
