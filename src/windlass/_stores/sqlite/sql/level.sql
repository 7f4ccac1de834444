-- The first ready tasks of a priority level: 1 is priorities above 0, -1 below 0, and 0 those at 0 that are in
-- lanes. Uses windlass_task_level, already in order; the conditions must repeat the index's own word for word.
SELECT lane, key, rank, id, rowid, type, tenant, payload
FROM windlass_task
WHERE
    queue = :queue AND state = 'ready' AND (priority <> 0 OR lane <> '' OR key <> '')
    AND (priority > 0) - (priority < 0) = :level
    AND (expires_at IS NULL OR expires_at > :now OR attempt > 0)
    AND (:types IS NULL OR type IN (SELECT value FROM json_each(:types)))
ORDER BY rank, id
LIMIT :limit
