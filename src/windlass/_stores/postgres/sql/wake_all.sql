-- Notify all listeners: a limit may let a task start, in any queue.
SELECT pg_notify('windlass.wake', wakes.queue)
FROM (
    SELECT DISTINCT unnest(l.queues) AS queue
    FROM windlass.listener AS l
    WHERE l.until > clock_timestamp()
) AS wakes
WHERE wakes.queue <> ''
