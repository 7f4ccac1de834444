-- The first ready tasks of a lane that still have a key although no limit applies to them, after skipping some.
-- Uses windlass_task_ready, already in order.
SELECT lane, key, rank, id, rowid, type, tenant, payload
FROM windlass_task
WHERE queue = :queue AND lane = :lane AND key > '' AND state = 'ready'
    AND (expires_at IS NULL OR expires_at > :now OR attempt > 0) AND (:types IS NULL OR type IN (SELECT value FROM json_each(:types)))
ORDER BY key, rank, id
LIMIT :limit OFFSET :past
