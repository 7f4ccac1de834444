-- Which of these ids are taken, and in which state. Uses the unique index on id, once an id.
SELECT task.id, task.state
FROM json_each(:ids) AS given
CROSS JOIN windlass_task AS task ON task.id = given.value
