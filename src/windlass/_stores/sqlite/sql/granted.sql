-- The running tasks that a session was granted in claims up to this one. Uses windlass_task_running.
SELECT id, fence, claim_number
FROM windlass_task
WHERE session = :session AND state = 'running' AND claim_number <= :through
