-- The queues and types of ended tasks: one lookup in windlass_task_ended for each pair, however many tasks it has.
WITH RECURSIVE found (task) AS (
    SELECT (
        SELECT rowid
        FROM windlass_task
        WHERE finished_at IS NOT NULL
        ORDER BY queue, type
        LIMIT 1
    )
    UNION ALL
    SELECT (
        SELECT next.rowid
        FROM windlass_task AS next
        WHERE next.finished_at IS NOT NULL AND (next.queue, next.type) > (last.queue, last.type)
        ORDER BY next.queue, next.type
        LIMIT 1
    )
    FROM found
    INNER JOIN windlass_task AS last ON last.rowid = found.task
)
SELECT
    task.queue,
    task.type
FROM found
INNER JOIN windlass_task AS task ON task.rowid = found.task
