-- The queues that have or had ageing, and the head start of one priority in each.
SELECT q.name, q.head_start
FROM windlass.queue AS q
WHERE q.head_start IS NOT NULL
ORDER BY q.name
