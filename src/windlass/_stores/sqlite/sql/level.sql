-- The first ready tasks of a level of priority: 1 is above nought, -1 below, and 0 are those at nought that are in
-- lanes. Uses windlass_task_level, already in order; the conditions are the index's own, word by word.
SELECT lane, key, rank, id, rowid, type, tenant, payload
FROM windlass_task
WHERE
    queue = :queue AND state = 'ready' AND (priority <> 0 OR lane <> '' OR key <> '')
    AND (priority > 0) - (priority < 0) = :level
ORDER BY rank, id
LIMIT :limit
