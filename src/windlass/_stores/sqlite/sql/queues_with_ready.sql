-- Of these queues, those that have ready tasks: one lookup in windlass_task_ready for each.
SELECT named.value
FROM json_each(:queues) AS named
WHERE EXISTS (SELECT 1 FROM windlass_task AS task WHERE task.queue = named.value AND task.state = 'ready')
