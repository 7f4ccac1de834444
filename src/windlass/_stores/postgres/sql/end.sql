-- Tasks that completed or were cancelled leave for the history; answers with how many were there.
WITH ended AS (
    DELETE FROM windlass.task AS t
    USING unnest(
        $1::uuid[], $2::text[], $3::bigint[], $4::integer[], $5::timestamptz[], $6::timestamptz[],
        $7::double precision[], $8::text[], $9::bytea[], $10::boolean[], $11::text[], $12::text[], $13::text[],
        $14::text[]
    ) AS g (
        id, state, fence, attempt, run_at, finished_at, duration, outcome, result, cancel_requested, error_type,
        error_message, error_traceback, worker
    )
    WHERE t.id = g.id
    RETURNING
        t.id, t.root, g.run_at, t.created_at, t.claimed_at, t.boost, g.fence, g.duration, t.progress_fraction,
        t.timeout, t.priority, g.attempt, t.max_attempts, g.cancel_requested, t.type, t.queue, t.tenant, t.payload,
        g.worker, g.outcome, t.progress_message, g.result, t.idempotency_key, t.fingerprint, t.next, t.after,
        t.result_into, t.secret, t.trace, t.enqueued_by, t.once, g.finished_at, g.state, g.error_type,
        g.error_message, g.error_traceback
),

kept AS (
    INSERT INTO windlass.history (
        id, root, run_at, created_at, claimed_at, boost, fence, duration, progress_fraction, timeout, priority,
        attempt, max_attempts, cancel_requested, type, queue, tenant, payload, worker, outcome, progress_message,
        result, idempotency_key, fingerprint, next, after, result_into, secret, trace, enqueued_by, once,
        finished_at, state, error_type, error_message, error_traceback
    )
    SELECT ended.* FROM ended
)

SELECT count(*) FROM ended
