-- Ended tasks of a queue and type past their retention, longest ended first. Tasks that others wait for are kept
-- unless they are dead. Uses windlass_task_ended and the primary key of the dependencies.
SELECT id, tenant, idempotency_key
FROM windlass_task AS task
WHERE
    queue = :queue
    AND type = :type
    AND state = :state
    AND finished_at < :before
    AND (
        :state = 'dead'
        OR NOT EXISTS (SELECT 1 FROM windlass_dependency AS dependency WHERE dependency.predecessor = task.id)
    )
ORDER BY finished_at
LIMIT :limit
