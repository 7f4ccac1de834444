-- Queues whose tasks were being moved to other lanes by somebody who did not finish.
SELECT q.name
FROM windlass.queue AS q
WHERE q.unsettled
ORDER BY q.name
