-- The lanes of a queue that have ready tasks, starting at a given one: one lookup in windlass_task_ready per lane.
WITH RECURSIVE found (lane, number) AS (
    SELECT
        (
            SELECT min(task.lane)
            FROM windlass_task AS task
            WHERE task.queue = :queue AND task.state = 'ready' AND task.lane >= :first AND task.lane < :below
        ),
        1
    UNION ALL
    SELECT
        (
            SELECT min(task.lane)
            FROM windlass_task AS task
            WHERE task.queue = :queue AND task.state = 'ready' AND task.lane > found.lane AND task.lane < :below
        ),
        number + 1
    FROM found
    WHERE found.lane IS NOT NULL AND number < :limit
)
SELECT lane
FROM found
WHERE lane IS NOT NULL
