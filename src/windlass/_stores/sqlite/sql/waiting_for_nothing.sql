-- The number of waiting tasks without a predecessor; it should be 0. A scan, for the health report only.
SELECT count(*)
FROM windlass_task
WHERE state = 'waiting' AND id NOT IN (SELECT successor FROM windlass_dependency)
