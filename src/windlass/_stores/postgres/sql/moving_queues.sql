-- Queues whose tasks were being moved to other lanes by a process that did not finish.
SELECT q.name
FROM windlass.queue AS q
WHERE q.unsettled
ORDER BY q.name
