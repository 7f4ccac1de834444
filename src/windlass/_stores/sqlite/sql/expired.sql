-- Ended tasks of a queue and type past their retention, longest ended first. Tasks that others need are kept unless they
-- are dead; not more than a number of tasks are looked at. Uses windlass_task_ended and the primary key of the
-- dependencies.
SELECT few.id, few.tenant, few.idempotency_key
FROM (
    SELECT id, tenant, idempotency_key
    FROM windlass_task
    WHERE
        queue = :queue
        AND type = :type
        AND state = :state
        AND finished_at >= :since
        AND finished_at < :before
    ORDER BY finished_at
    LIMIT :look
) AS few
WHERE
    :state = 'dead'
    OR NOT EXISTS (SELECT 1 FROM windlass_dependency AS dependency WHERE dependency.predecessor = few.id)
LIMIT :limit
