-- How these tasks stand, for the leases on them. Uses the unique index on id, once an id.
SELECT task.id, task.fence, task.cancel_requested
FROM json_each(:ids) AS given
CROSS JOIN windlass_task AS task ON task.id = given.value
WHERE task.state = 'running'
