-- Whether one of these queues has ready tasks and is not paused. Uses windlass_task_ready.
SELECT 1
FROM json_each(:queues) AS named
WHERE
    EXISTS (SELECT 1 FROM windlass_task WHERE queue = named.value AND state = 'ready')
    AND NOT EXISTS (SELECT 1 FROM windlass_queue WHERE name = named.value AND paused = 1)
LIMIT 1
