-- The first ready tasks of one queue without lanes. Covered by windlass_task_ready, already in order; several
-- queues are queried one by one and merged, so that no claim sorts a backlog.
SELECT rank, id, rowid
FROM windlass_task
WHERE queue = :queue AND lane = '' AND key = '' AND state = 'ready'
ORDER BY rank, id
LIMIT :limit
