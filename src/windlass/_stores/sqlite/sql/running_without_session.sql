-- How many tasks run for nobody; there should be none. Uses windlass_task_running.
SELECT count(*)
FROM windlass_task
WHERE state = 'running' AND session IS NULL
