-- What every claim and every enqueue depends on: the settings of queues, the limits, and the queues with tasks
-- that are not in their lanes. All of them are few.
SELECT settings, NULL, NULL
FROM windlass_queue
UNION ALL
SELECT NULL, body, NULL
FROM windlass_record
WHERE kind = 'limit'
UNION ALL
SELECT NULL, NULL, queue
FROM windlass_rearranging
