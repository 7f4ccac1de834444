-- Some ready tasks of these queues that are outside their lanes.
SELECT t.id::text, t.queue, t.type, t.tenant, t.priority, t.payload
FROM unnest($1::text[]) AS g (queue)
CROSS JOIN LATERAL (
    SELECT t.id, t.queue, t.type, t.tenant, t.priority, t.payload
    FROM windlass.task AS t
    WHERE t.state = 'ready' AND t.queue = g.queue AND t.stripe >= 0
    ORDER BY t.queue, t.stripe, t.rank, t.id
    LIMIT $2
    FOR UPDATE OF t SKIP LOCKED
) AS t
