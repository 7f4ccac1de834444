-- Whether a queue that is not paused has ready tasks. Uses windlass_task_ready.
SELECT 1
FROM windlass_task
WHERE
    queue = :queue
    AND state = 'ready'
    AND NOT EXISTS (SELECT 1 FROM windlass_queue WHERE name = :queue AND paused = 1)
LIMIT 1
