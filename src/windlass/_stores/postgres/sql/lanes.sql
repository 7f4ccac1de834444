-- The lanes of a queue that have ready tasks, with names in a range: one index lookup in task_lane for each. And
-- how many tasks each has, counted up to a bound; with a bound of 0 nothing more is read.
-- Rows are compared as tuples, here and in the other statements on lanes, because only this index has that order,
-- so that the planner uses it whatever the statistics say.
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
