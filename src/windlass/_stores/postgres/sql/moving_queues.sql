-- Queues whose tasks somebody began to put into other lanes, and did not finish.
SELECT q.name
FROM windlass.queue AS q
WHERE q.unsettled
ORDER BY q.name
