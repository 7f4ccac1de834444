-- The settings of every queue. There are few queues: a scan.
SELECT settings
FROM windlass_queue
