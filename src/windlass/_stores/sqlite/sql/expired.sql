-- Ended tasks of a queue past their retention, longest ended first; one that another waits for stays, unless
-- it is dead. Uses windlass_task_ended and the dependencies' primary key.
SELECT id, tenant, idempotency_key
FROM windlass_task AS task
WHERE
    queue = :queue
    AND state = :state
    AND finished_at < :before
    AND (
        :state = 'dead'
        OR NOT EXISTS (SELECT 1 FROM windlass_dependency AS dependency WHERE dependency.predecessor = task.id)
    )
ORDER BY finished_at
LIMIT :limit
