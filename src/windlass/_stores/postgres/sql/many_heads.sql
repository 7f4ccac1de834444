-- The first ready tasks of many stripes together, read without locking them; $14 of them, which is more than the
-- claim takes, as others may have locked some.
-- Queues with ready tasks are found one by one in task_ready, up to a bound: then most of those that the claim names
-- need not be looked up. Beyond the bound each is.
ready AS MATERIALIZED (
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

    SELECT found.queue FROM found
    WHERE EXISTS (SELECT FROM alive)
    LIMIT 101
),

-- The first task of each stripe (without numbers and starts: of the first one, from its beginning), and of these as many stripes as there are tasks to read: all first tasks are in them.
heads AS MATERIALIZED (
    SELECT head.queue, head.stripe, head.rank, head.id
    FROM unnest($8::text[], $9::smallint[], $12::bigint[], $13::uuid[]) AS g (queue, stripe, rank, id)
    CROSS JOIN LATERAL (
        SELECT t.queue, t.stripe, t.rank, t.id
        FROM windlass.task AS t
        WHERE
            t.state = 'ready' AND t.queue = g.queue AND t.stripe = coalesce(g.stripe, 0)
            AND (t.rank, t.id) >= (
                coalesce(g.rank, -9223372036854775808), coalesce(g.id, '00000000-0000-0000-0000-000000000000')
            )
            AND (t.expires_at IS NULL OR t.expires_at > (SELECT clock.now FROM clock) OR t.attempt > 0) /* :of_types */
        ORDER BY t.rank, t.id
        LIMIT 1
    ) AS head
    WHERE
        ((SELECT count(*) FROM ready) > 100 OR g.queue IN (SELECT ready.queue FROM ready))
        AND (SELECT true FROM alive)
        AND g.queue NOT IN (SELECT closed.name FROM closed)
        AND NOT EXISTS (SELECT FROM closed WHERE closed.name = '')
    ORDER BY head.rank, head.id
    LIMIT $14
),

-- The last of them, if there are so many: no task after it is among the first.
last AS MATERIALIZED (
    SELECT
        CASE WHEN count(*) < $14 THEN 9223372036854775807 ELSE max(heads.rank) END AS rank
    FROM heads
),

candidate AS MATERIALIZED (
    SELECT first.rank, first.id, first.ctid
    FROM heads
    CROSS JOIN LATERAL (
        SELECT t.rank, t.id, t.ctid
        FROM windlass.task AS t
        WHERE
            t.state = 'ready' AND t.queue = heads.queue AND t.stripe = heads.stripe
            AND (t.rank, t.id) >= (heads.rank, heads.id) AND t.rank <= (SELECT last.rank FROM last)
            AND (t.expires_at IS NULL OR t.expires_at > (SELECT clock.now FROM clock) OR t.attempt > 0) /* :of_types */
        ORDER BY t.rank, t.id
        LIMIT $14
    ) AS first
    ORDER BY first.rank, first.id
    LIMIT $14
),
