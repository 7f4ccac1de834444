-- Leased tasks in the order of the given rowids, as one JSON text: a row costs Python more than a task costs
-- SQLite, and each row would take the interpreter's lock again. Holds only the columns that most tasks use; the
-- last value is the rowid of a task that uses others, or whose payload is cheaper to copy than to quote, and has
-- to be read separately. By rowid.
SELECT CAST(json_group_array(json_array(
    task.id, task.type, CASE WHEN length(task.payload) <= 2000 THEN CAST(task.payload AS TEXT) END, task.root,
    task.queue, task.tenant, task.priority, task.boost, task.attempt, task.max_attempts, task.fence, task.run_at,
    task.created_at, task.claimed_at, task.timeout, task.session, task.worker, task.idempotency_key, task.secret,
    task.trace, task.enqueued_by,
    CASE
        WHEN
            task.cancel_requested OR length(task.payload) > 2000 OR coalesce(
                task.duration, task.progress_fraction, task.error_type, task.fingerprint, task.next, task.after,
                task.result_into, task.expires_at
            ) IS NOT NULL
            THEN task.rowid
    END
)) AS BLOB)
FROM json_each(:rowids) AS given
CROSS JOIN windlass_task AS task ON task.rowid = given.value
