-- Tells listeners which queues have something ready, and, by an empty name, that something is due soon.
-- Nobody is notified while nobody listens: a notification makes commits wait for each other.
SELECT pg_notify('windlass.wake', news.queue)
FROM unnest($1::text[]) AS news (queue)
WHERE EXISTS (
    SELECT FROM windlass.listener AS l
    WHERE l.until > clock_timestamp() AND news.queue = ANY (l.queues)
)
