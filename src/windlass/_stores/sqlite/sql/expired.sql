-- Ended tasks of a queue and type past their retention, longest ended first, behind one that was looked at. Tasks that
-- others need are kept unless they are dead; not more than a number of tasks are looked at. Uses the primary key of the
-- dependencies, and windlass_task_ended, which ends with the rowid, twice: (finished_at, rowid) > (…) would begin with the
-- first task of that instant.
SELECT few.id, few.tenant, few.idempotency_key, few.finished_at, few.number
FROM (
    SELECT *
    FROM (
        SELECT id, tenant, idempotency_key, finished_at, rowid AS number
        FROM windlass_task
        WHERE
            queue = :queue
            AND type = :type
            AND state = :state
            AND finished_at = :finished_at
            AND rowid > :rowid
            AND :finished_at < :before
        ORDER BY rowid
    )
    UNION ALL
    SELECT *
    FROM (
        SELECT id, tenant, idempotency_key, finished_at, rowid AS number
        FROM windlass_task
        WHERE
            queue = :queue
            AND type = :type
            AND state = :state
            AND finished_at > :finished_at
            AND finished_at < :before
        ORDER BY finished_at, rowid
    )
    LIMIT :look
) AS few
WHERE
    :state = 'dead'
    OR NOT EXISTS (SELECT 1 FROM windlass_dependency AS dependency WHERE dependency.predecessor = few.id)
LIMIT :limit
