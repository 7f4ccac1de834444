-- The failures that dead tasks have: one index lookup in task_failure for each, however many tasks it has.
WITH RECURSIVE found (failure) AS (
    (SELECT t.failure FROM windlass.task AS t WHERE t.state = 'dead' AND t.failure IS NOT NULL ORDER BY t.failure LIMIT 1)
    UNION ALL
    SELECT further.failure
    FROM found
    CROSS JOIN LATERAL (
        SELECT t.failure
        FROM windlass.task AS t
        WHERE t.state = 'dead' AND t.failure > found.failure
        ORDER BY t.failure
        LIMIT 1
    ) AS further
)

SELECT found.failure FROM found LIMIT $1
