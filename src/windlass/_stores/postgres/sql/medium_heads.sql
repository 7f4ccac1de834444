-- As level_heads.sql for the medium level, which has no index of its own: by task_ready in each stripe (-1 is all
-- lanes), past tasks of other levels. The limit applies to each stripe.
WITH RECURSIVE found (stripe) AS (
    (
        SELECT t.stripe
        FROM windlass.task AS t
        WHERE t.state = 'ready' AND t.queue = $1
        ORDER BY t.queue, t.stripe
        LIMIT 1
    )
    UNION ALL
    SELECT further.stripe
    FROM found
    CROSS JOIN LATERAL (
        SELECT t.stripe
        FROM windlass.task AS t
        WHERE t.state = 'ready' AND t.queue = $1 AND t.stripe > found.stripe
        ORDER BY t.queue, t.stripe
        LIMIT 1
    ) AS further
)

SELECT '', '', head.rank, head.id::text, head.type, head.tenant, head.payload
FROM found
CROSS JOIN LATERAL (
    SELECT t.rank, t.id, t.type, t.tenant, t.payload
    FROM windlass.task AS t
    WHERE
        t.state = 'ready' AND t.queue = $1 AND t.stripe = found.stripe AND t.priority = 0
        AND t.id <> ALL ($3::uuid[]) AND (t.expires_at IS NULL OR t.expires_at > $4 OR t.attempt > 0) /* :of_types */
    ORDER BY t.rank, t.id
    LIMIT $2
    FOR UPDATE OF t SKIP LOCKED
) AS head
