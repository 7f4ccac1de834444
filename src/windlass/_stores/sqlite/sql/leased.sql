-- Leased tasks, in the order of the rowids given, with what most of them have; the last column says that a
-- task has more, and is to be read whole. Half the columns cost half as much, at every claim. By rowid.
SELECT
    task.id, task.type, task.payload, task.root, task.queue, task.tenant, task.priority, task.boost, task.attempt,
    task.max_attempts, task.fence, task.run_at, task.created_at, task.claimed_at, task.timeout, task.session,
    task.worker, task.idempotency_key, task.secret, task.trace, task.enqueued_by,
    task.cancel_requested OR coalesce(
        task.duration, task.progress_fraction, task.error_type, task.fingerprint, task.next, task.after,
        task.result_into
    ) IS NOT NULL
FROM json_each(:rowids) AS given
CROSS JOIN windlass_task AS task ON task.rowid = given.value
