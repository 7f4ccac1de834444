-- What every claim and every enqueue goes by: the settings of queues, the limits, and which queues have tasks where
-- they no longer belong. There are few of all.
SELECT settings, NULL, NULL
FROM windlass_queue
UNION ALL
SELECT NULL, body, NULL
FROM windlass_record
WHERE kind = 'limit'
UNION ALL
SELECT NULL, NULL, queue
FROM windlass_rearranging
