-- Whole tasks, in the order of the rowids given. By rowid.
SELECT
    task.id, task.type, task.payload, task.root, task.queue, task.tenant, task.priority, task.boost, task.state,
    task.attempt, task.max_attempts, task.fence, task.run_at, task.created_at, task.claimed_at, task.finished_at,
    task.timeout, task.session, task.worker, task.duration, task.cancel_requested, task.progress_fraction,
    task.progress_message, task.result, task.error_type, task.error_message, task.error_traceback,
    task.idempotency_key, task.fingerprint, task.next, task.after, task.result_into, task.secret, task.trace,
    task.enqueued_by
FROM json_each(:rowids) AS given
CROSS JOIN windlass_task AS task ON task.rowid = given.value
