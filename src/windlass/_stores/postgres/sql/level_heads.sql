-- The first ready tasks of the high or the low level of priority, in any lane; locked as in lane_heads.sql.
SELECT '', '', t.rank, t.id::text, t.type, t.tenant, t.payload
FROM windlass.task AS t
WHERE
    t.state = 'ready' AND t.queue = $1 AND /* :level */ AND t.id <> ALL ($3::uuid[])
    AND (t.expires_at IS NULL OR t.expires_at > $4 OR t.attempt > 0) /* :of_types */
ORDER BY t.rank, t.id
LIMIT $2
FOR UPDATE OF t SKIP LOCKED
