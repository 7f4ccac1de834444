-- The first ready tasks of one queue that is one line. Uses windlass_task_ready alone, already in order; several
-- queues are asked one by one and merged, so that no claim ever sorts a backlog.
SELECT rank, id, rowid
FROM windlass_task
WHERE queue = :queue AND lane = '' AND key = '' AND state = 'ready'
ORDER BY rank, id
LIMIT :limit
