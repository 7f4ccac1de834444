-- Tells everybody who waits: a limit may let something start now, in whatever queue.
SELECT pg_notify('windlass.wake', news.queue)
FROM (
    SELECT DISTINCT unnest(l.queues) AS queue
    FROM windlass.listener AS l
    WHERE l.until > clock_timestamp()
) AS news
WHERE news.queue <> ''
