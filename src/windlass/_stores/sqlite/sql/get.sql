-- One whole task. Uses the unique index on id.
SELECT
    task.id, task.type, task.payload, task.root, task.queue, task.tenant, task.priority, task.boost, task.state,
    task.attempt, task.max_attempts, task.fence, task.run_at, task.created_at, task.claimed_at, task.finished_at,
    task.timeout, task.session, task.worker, task.duration, task.cancel_requested, task.progress_fraction,
    task.progress_message, task.result, task.error_type, task.error_message, task.error_traceback,
    task.idempotency_key, task.fingerprint, task.next, task.after, task.result_into, task.secret, task.trace,
    task.enqueued_by
FROM windlass_task AS task
WHERE task.id = :id
