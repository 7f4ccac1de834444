-- The first tasks of some keys in each lane: of the key '', and of those after a given key, wrapping around to it.
-- One index lookup in task_lane for each key, and no locks; skips what this claim has read already. A search for tasks
-- of some types passes over others, so it must not leave the lane.
SELECT g.lane, named.key, head.rank, head.id::text, head.type, head.tenant, head.payload
FROM unnest($2::text[], $3::text[]) AS g (lane, after)
CROSS JOIN LATERAL (
    SELECT every.key
    FROM (
        (SELECT '' COLLATE "C" AS key)
        UNION ALL
        (
            WITH RECURSIVE up (queue, lane, key) AS (
                (
                    SELECT t.queue, t.lane, t.key
                    FROM windlass.task AS t
                    WHERE
                        t.state = 'ready' AND t.lane IS NOT NULL
                        AND (t.queue, t.lane, t.key) > ($1, g.lane, g.after) /* :in_lane */ /* :of_types */
                    ORDER BY t.queue, t.lane, t.key
                    LIMIT 1
                )
                UNION ALL
                SELECT further.queue, further.lane, further.key
                FROM up
                CROSS JOIN LATERAL (
                    SELECT t.queue, t.lane, t.key
                    FROM windlass.task AS t
                    WHERE
                        t.state = 'ready' AND t.lane IS NOT NULL
                        AND (t.queue, t.lane, t.key) > (up.queue, up.lane, up.key) /* :in_lane */ /* :of_types */
                    ORDER BY t.queue, t.lane, t.key
                    LIMIT 1
                ) AS further
                WHERE up.queue = $1 AND up.lane = g.lane
            )

            SELECT up.key FROM up WHERE up.queue = $1 AND up.lane = g.lane
        )
        UNION ALL
        (
            WITH RECURSIVE round (queue, lane, key) AS (
                (
                    SELECT t.queue, t.lane, t.key
                    FROM windlass.task AS t
                    WHERE
                        t.state = 'ready' AND t.lane IS NOT NULL
                        AND (t.queue, t.lane, t.key) > ($1, g.lane, '') /* :in_lane */ /* :of_types */
                    ORDER BY t.queue, t.lane, t.key
                    LIMIT 1
                )
                UNION ALL
                SELECT further.queue, further.lane, further.key
                FROM round
                CROSS JOIN LATERAL (
                    SELECT t.queue, t.lane, t.key
                    FROM windlass.task AS t
                    WHERE
                        t.state = 'ready' AND t.lane IS NOT NULL
                        AND (t.queue, t.lane, t.key) > (round.queue, round.lane, round.key) /* :in_lane */ /* :of_types */
                    ORDER BY t.queue, t.lane, t.key
                    LIMIT 1
                ) AS further
                WHERE round.queue = $1 AND round.lane = g.lane AND round.key <= g.after
            )

            SELECT round.key FROM round WHERE round.queue = $1 AND round.lane = g.lane AND round.key <= g.after
        )
    ) AS every
    LIMIT $4
) AS named
CROSS JOIN LATERAL (
    SELECT t.rank, t.id, t.type, t.tenant, t.payload
    FROM windlass.task AS t
    WHERE
        t.state = 'ready' AND t.lane IS NOT NULL AND t.queue = $1 AND t.lane = g.lane AND t.key = named.key
        AND t.id <> ALL ($5::uuid[]) AND (t.expires_at IS NULL OR t.expires_at > $6 OR t.attempt > 0) /* :of_types */
    ORDER BY t.queue, t.lane, t.key, t.rank, t.id
    LIMIT 1
) AS head
