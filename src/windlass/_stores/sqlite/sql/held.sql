-- Fence and cancel request of those of these tasks that run. One lookup in the unique index on id per task.
SELECT task.id, task.fence, task.cancel_requested, task.cancelled_by, task.cancel_reason
FROM json_each(:ids) AS given
CROSS JOIN windlass_task AS task ON task.id = given.value
WHERE task.state = 'running'
