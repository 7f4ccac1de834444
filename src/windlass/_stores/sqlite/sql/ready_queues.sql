-- The queues that have ready tasks: one lookup in windlass_task_ready per queue, however many tasks it has.
WITH RECURSIVE found (queue) AS (
    SELECT min(queue)
    FROM windlass_task
    WHERE state = 'ready'
    UNION ALL
    SELECT (
        SELECT min(task.queue)
        FROM windlass_task AS task
        WHERE task.state = 'ready' AND task.queue > found.queue
    )
    FROM found
    WHERE found.queue IS NOT NULL
)
SELECT queue
FROM found
WHERE queue IS NOT NULL
