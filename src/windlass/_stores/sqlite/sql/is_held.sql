-- Whether a lease is still valid. Uses the unique index on id.
SELECT 1
FROM windlass_task
WHERE id = :id AND fence = :fence AND state = 'running'
