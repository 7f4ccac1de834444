-- Ready tasks of the middle level among the first of a queue without lanes, from a rank on. Uses
-- windlass_task_ready, already in order.
SELECT near.lane, near.key, near.rank, near.id, near.row, near.type, near.tenant, near.payload
FROM (
    SELECT lane, key, rank, id, rowid AS row, type, tenant, payload, priority
    FROM windlass_task
    WHERE queue = :queue AND lane = '' AND key = '' AND state = 'ready' AND rank >= :rank
        AND (expires_at IS NULL OR expires_at > :now OR attempt > 0)
        AND (:types IS NULL OR type IN (SELECT value FROM json_each(:types)))
    ORDER BY rank, id
    LIMIT :window
) AS near
WHERE near.priority = 0
LIMIT :limit
