-- The first ready tasks of a lane and key, after skipping some. Uses windlass_task_ready, already in order.
SELECT lane, key, rank, id, rowid, type, tenant, payload
FROM windlass_task
WHERE queue = :queue AND lane = :lane AND key = :key AND state = 'ready'
    AND (expires_at IS NULL OR expires_at > :now OR attempt > 0) AND (:types IS NULL OR type IN (SELECT value FROM json_each(:types)))
ORDER BY rank, id
LIMIT :limit OFFSET :past
