-- The lanes of a queue that have ready tasks, as lanes.sql finds them, and how many, counted up to a bound.
WITH RECURSIVE found (lane) AS (
    (
        SELECT t.lane
        FROM windlass.task AS t
        WHERE t.state = 'ready' AND t.lane IS NOT NULL AND t.queue = $1 AND t.lane >= $2 AND t.lane < $3
        ORDER BY t.lane
        LIMIT 1
    )
    UNION ALL
    SELECT further.lane
    FROM found
    CROSS JOIN LATERAL (
        SELECT t.lane
        FROM windlass.task AS t
        WHERE t.state = 'ready' AND t.lane IS NOT NULL AND t.queue = $1 AND t.lane > found.lane AND t.lane < $3
        ORDER BY t.lane
        LIMIT 1
    ) AS further
)

SELECT found.lane, few.number
FROM found
CROSS JOIN LATERAL (
    SELECT count(*) AS number
    FROM (
        SELECT
        FROM windlass.task AS t
        WHERE t.state = 'ready' AND t.lane IS NOT NULL AND t.queue = $1 AND t.lane = found.lane
        LIMIT $4
    ) AS counted
) AS few
