-- The queues that have ready tasks in lanes: one index lookup in task_lane for each.
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
