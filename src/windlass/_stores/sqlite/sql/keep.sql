-- Write the changes of a task if its fence and state are still the expected ones. Uses the unique index on id.
UPDATE windlass_task
SET
    payload = :payload, fingerprint = :fingerprint, state = :state, attempt = :attempt, fence = :fence, run_at = :run_at,
    boost = :boost, rank = :rank, finished_at = :finished_at, session = :session, duration = :duration,
    cancel_requested = :cancel_requested,
    progress_fraction = :progress_fraction, progress_message = :progress_message, error_type = :error_type,
    error_message = :error_message, error_traceback = :error_traceback, unhandled_since = :unhandled_since, expires_at = :expires_at,
    cancelled_by = :cancelled_by, cancel_reason = :cancel_reason, failure = :failure, result = :result,
    outcome = coalesce(:outcome, outcome), lane = :lane, key = :key,
    permits = CASE WHEN :state = 'running' THEN permits END
WHERE id = :id AND fence = :fence_before AND state = :state_before
