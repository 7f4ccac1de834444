-- How many tasks wait for nothing; there should be none. A scan, for the health report only.
SELECT count(*)
FROM windlass_task
WHERE state = 'waiting' AND id NOT IN (SELECT successor FROM windlass_dependency)
