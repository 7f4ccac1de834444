-- The task with this fingerprint that has not ended. Uses windlass_task_fingerprint.
SELECT id
FROM windlass_task
WHERE fingerprint = :fingerprint AND finished_at IS NULL
