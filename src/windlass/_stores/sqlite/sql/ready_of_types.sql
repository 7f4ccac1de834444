-- The first ready tasks of one queue without lanes that are of these types. Uses windlass_task_ready, already in order;
-- the type is in the row, so tasks of other types cost a lookup each.
SELECT rank, id, rowid
FROM windlass_task
WHERE queue = :queue AND lane = '' AND key = '' AND state = 'ready'
    AND type IN (SELECT value FROM json_each(:types)) AND (expires_at IS NULL OR expires_at > :now OR attempt > 0)
ORDER BY rank, id
LIMIT :limit
