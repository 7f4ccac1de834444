-- The heads of some keys in each of these lanes: of '', and of those that follow a key, round to it again.
-- A leap through task_lane for each key, and nothing is locked; what this claim has seen is passed over.
SELECT g.lane, named.key, head.rank, head.id::text, head.type, head.tenant, head.payload
FROM unnest($2::text[], $3::text[]) AS g (lane, after)
CROSS JOIN LATERAL (
    SELECT every.key
    FROM (
        (SELECT '' COLLATE "C" AS key)
        UNION ALL
        (
            WITH RECURSIVE up (key) AS (
                (
                    SELECT t.key
                    FROM windlass.task AS t
                    WHERE
                        t.state = 'ready' AND t.lane IS NOT NULL AND t.queue = $1 AND t.lane = g.lane
                        AND t.key > g.after
                    ORDER BY t.key
                    LIMIT 1
                )
                UNION ALL
                SELECT further.key
                FROM up
                CROSS JOIN LATERAL (
                    SELECT t.key
                    FROM windlass.task AS t
                    WHERE
                        t.state = 'ready' AND t.lane IS NOT NULL AND t.queue = $1 AND t.lane = g.lane
                        AND t.key > up.key
                    ORDER BY t.key
                    LIMIT 1
                ) AS further
            )

            SELECT up.key FROM up
        )
        UNION ALL
        (
            WITH RECURSIVE round (key) AS (
                (
                    SELECT t.key
                    FROM windlass.task AS t
                    WHERE
                        t.state = 'ready' AND t.lane IS NOT NULL AND t.queue = $1 AND t.lane = g.lane
                        AND t.key > '' AND t.key <= g.after
                    ORDER BY t.key
                    LIMIT 1
                )
                UNION ALL
                SELECT further.key
                FROM round
                CROSS JOIN LATERAL (
                    SELECT t.key
                    FROM windlass.task AS t
                    WHERE
                        t.state = 'ready' AND t.lane IS NOT NULL AND t.queue = $1 AND t.lane = g.lane
                        AND t.key > round.key AND t.key <= g.after
                    ORDER BY t.key
                    LIMIT 1
                ) AS further
            )

            SELECT round.key FROM round
        )
    ) AS every
    LIMIT $4
) AS named
CROSS JOIN LATERAL (
    SELECT t.rank, t.id, t.type, t.tenant, t.payload
    FROM windlass.task AS t
    WHERE t.state = 'ready' AND t.lane IS NOT NULL AND t.queue = $1 AND t.lane = g.lane AND t.key = named.key
        AND t.id <> ALL ($5::uuid[])
    ORDER BY t.rank, t.id
    LIMIT 1
) AS head
