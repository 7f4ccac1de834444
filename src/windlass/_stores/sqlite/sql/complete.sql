-- Complete running tasks whose lease still holds. Uses the unique index on id; by position, in batches.
UPDATE windlass_task
SET
    state = 'completed', session = NULL, finished_at = ?, duration = ?, outcome = ?, result = ?,
    error_type = NULL, error_message = NULL, error_traceback = NULL
WHERE id = ? AND fence = ? AND state = 'running'
