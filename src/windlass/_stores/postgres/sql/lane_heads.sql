-- The first ready tasks of lanes and keys, a number for each, locked as they are found. Skips those that others
-- have locked and those that this claim has read already.
SELECT g.lane, g.key, head.rank, head.id::text, head.type, head.tenant, head.payload
FROM unnest($2::text[], $3::text[], $4::integer[]) AS g (lane, key, number)
CROSS JOIN LATERAL (
    SELECT t.rank, t.id, t.type, t.tenant, t.payload
    FROM windlass.task AS t
    WHERE
        t.state = 'ready' AND t.lane IS NOT NULL AND t.queue = $1 AND t.lane = g.lane AND t.key = g.key
        AND t.id <> ALL ($5::uuid[]) AND (t.expires_at IS NULL OR t.expires_at > $6 OR t.attempt > 0) /* :of_types */
    ORDER BY t.queue, t.lane, t.key, t.rank, t.id
    LIMIT g.number
    FOR UPDATE OF t SKIP LOCKED
) AS head
