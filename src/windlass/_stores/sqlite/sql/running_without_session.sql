-- The number of running tasks without a session; it should be 0. Uses windlass_task_running.
SELECT count(*)
FROM windlass_task
WHERE state = 'running' AND session IS NULL
