-- The ready tasks of a queue after a given one, lane by lane, with what lanes, limits and ranks depend on. Uses
-- windlass_task_ready, already in order.
SELECT queue, type, tenant, payload, rowid, priority, boost, lane, key, rank, id
FROM windlass_task
WHERE queue = :queue AND state = 'ready' AND (lane, key, rank, id) > (:lane, :key, :rank, :id)
ORDER BY lane, key, rank, id
LIMIT :limit
