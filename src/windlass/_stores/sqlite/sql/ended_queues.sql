-- The queues that have ended tasks: one lookup in windlass_task_ended per queue, however many tasks it has.
WITH RECURSIVE found (queue) AS (
    SELECT min(queue)
    FROM windlass_task
    WHERE finished_at IS NOT NULL
    UNION ALL
    SELECT (
        SELECT min(task.queue)
        FROM windlass_task AS task
        WHERE task.finished_at IS NOT NULL AND task.queue > found.queue
    )
    FROM found
    WHERE found.queue IS NOT NULL
)
SELECT queue
FROM found
WHERE queue IS NOT NULL
