-- The lanes of a queue that have ready tasks, as lanes.sql finds them, and how many, counted up to a bound.
WITH RECURSIVE found (queue, lane) AS (
    (
        SELECT t.queue, t.lane
        FROM windlass.task AS t
        WHERE t.state = 'ready' AND t.lane IS NOT NULL AND (t.queue, t.lane) >= ($1, $2)
        ORDER BY t.queue, t.lane
        LIMIT 1
    )
    UNION ALL
    SELECT further.queue, further.lane
    FROM found
    CROSS JOIN LATERAL (
        SELECT t.queue, t.lane
        FROM windlass.task AS t
        WHERE t.state = 'ready' AND t.lane IS NOT NULL AND (t.queue, t.lane) > (found.queue, found.lane)
        ORDER BY t.queue, t.lane
        LIMIT 1
    ) AS further
    WHERE found.queue = $1 AND found.lane < $3
)

SELECT found.lane, few.number
FROM found
CROSS JOIN LATERAL (
    SELECT count(*) AS number
    FROM (
        SELECT
        FROM windlass.task AS t
        WHERE t.state = 'ready' AND t.lane IS NOT NULL AND t.queue = found.queue AND t.lane = found.lane
        ORDER BY t.queue, t.lane, t.key
        LIMIT $4
    ) AS counted
) AS few
WHERE found.queue = $1 AND found.lane < $3
