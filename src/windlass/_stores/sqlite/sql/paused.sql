-- The queues that give no tasks. There are few queues: a scan.
SELECT name
FROM windlass_queue
WHERE paused = 1
