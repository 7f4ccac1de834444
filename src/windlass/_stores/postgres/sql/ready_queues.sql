-- The queues that have ready tasks: one index lookup in task_ready for each, however many tasks it has.
WITH RECURSIVE found (queue) AS (
    (SELECT t.queue FROM windlass.task AS t WHERE t.state = 'ready' ORDER BY t.queue LIMIT 1)
    UNION ALL
    SELECT further.queue
    FROM found
    CROSS JOIN LATERAL (
        SELECT t.queue
        FROM windlass.task AS t
        WHERE t.state = 'ready' AND t.queue > found.queue
        ORDER BY t.queue
        LIMIT 1
    ) AS further
)

SELECT found.queue FROM found LIMIT $1
