-- Whole tasks, a page by id. The conditions of the filter take the place of "TRUE"; see filters.py for the
-- index that each kind of filter uses.
SELECT
    task.id, task.type, task.payload, task.root, task.queue, task.tenant, task.priority, task.boost, task.state,
    task.attempt, task.max_attempts, task.fence, task.run_at, task.created_at, task.claimed_at, task.finished_at,
    task.timeout, task.session, task.worker, task.duration, task.cancel_requested, task.progress_fraction,
    task.progress_message, task.result, task.error_type, task.error_message, task.error_traceback,
    task.idempotency_key, task.fingerprint, task.next, task.after, task.result_into, task.secret, task.trace,
    task.enqueued_by
FROM windlass_task AS task
WHERE TRUE
ORDER BY task.id
LIMIT :limit
