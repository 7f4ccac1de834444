-- Notify listeners of queues with ready tasks, or of a task due soon (''). Only while there are listeners, because
-- NOTIFY serialises commits.
SELECT pg_notify('windlass.wake', wakes.queue)
FROM unnest($1::text[]) AS wakes (queue)
WHERE EXISTS (
    SELECT FROM windlass.listener AS l
    WHERE l.until > clock_timestamp() AND wakes.queue = ANY (l.queues)
)
