-- When the last task ended that expired.sql looked at; none if it has looked at all. Uses windlass_task_ended.
SELECT finished_at
FROM windlass_task
WHERE
    queue = :queue
    AND type = :type
    AND state = :state
    AND finished_at >= :since
    AND finished_at < :before
ORDER BY finished_at
LIMIT 1 OFFSET :look - 1
