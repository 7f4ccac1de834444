-- The queues that have ready tasks in lanes: one leap through task_lane a queue.
WITH RECURSIVE found (queue) AS (
    (
        SELECT t.queue FROM windlass.task AS t
        WHERE t.state = 'ready' AND t.lane IS NOT NULL
        ORDER BY t.queue LIMIT 1
    )
    UNION ALL
    SELECT further.queue
    FROM found
    CROSS JOIN LATERAL (
        SELECT t.queue
        FROM windlass.task AS t
        WHERE t.state = 'ready' AND t.lane IS NOT NULL AND t.queue > found.queue
        ORDER BY t.queue
        LIMIT 1
    ) AS further
)

SELECT found.queue FROM found
