-- The last task that expired.sql looked at; none if it has looked at all. Uses windlass_task_ended twice, as that does.
SELECT *
FROM (
    SELECT finished_at, rowid
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
    SELECT finished_at, rowid
    FROM windlass_task
    WHERE
        queue = :queue
        AND type = :type
        AND state = :state
        AND finished_at > :finished_at
        AND finished_at < :before
    ORDER BY finished_at, rowid
)
LIMIT 1 OFFSET :look - 1
