-- The lanes of a queue that have ready tasks, from one on and below another: a leap through task_lane for each.
-- And how many, counted up to a bound; with a bound of 0 no further page is read.
-- Rows are compared, here and wherever lanes are gone through: no other index can give that order, so that the
-- planner takes this one whatever it knows of the tasks.
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

SELECT
    found.lane,
    (
        SELECT count(*)
        FROM (
            SELECT
            FROM windlass.task AS t
            WHERE t.state = 'ready' AND t.lane IS NOT NULL AND t.queue = found.queue AND t.lane = found.lane
            ORDER BY t.queue, t.lane, t.key
            LIMIT $5
        ) AS few
    )
FROM found
WHERE found.queue = $1 AND found.lane < $3
LIMIT $4
