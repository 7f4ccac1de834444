-- The queues and types of ended tasks: two lookups in windlass_task_ended for each pair, however many tasks it has.
WITH RECURSIVE found (task) AS (
    SELECT (
        SELECT rowid
        FROM windlass_task
        WHERE finished_at IS NOT NULL
        ORDER BY queue, type
        LIMIT 1
    )
    UNION ALL
    -- Not (queue, type) > (last.queue, last.type): SQLite would look up the queue only, and read all its tasks.
    SELECT
        coalesce(
            (
                SELECT next.rowid
                FROM windlass_task AS next
                WHERE next.finished_at IS NOT NULL AND next.queue = last.queue AND next.type > last.type
                ORDER BY next.type
                LIMIT 1
            ),
            (
                SELECT next.rowid
                FROM windlass_task AS next
                WHERE next.finished_at IS NOT NULL AND next.queue > last.queue
                ORDER BY next.queue, next.type
                LIMIT 1
            )
        )
    FROM found
    INNER JOIN windlass_task AS last ON last.rowid = found.task
)
SELECT
    task.queue,
    task.type
FROM found
INNER JOIN windlass_task AS task ON task.rowid = found.task
