-- Cancelled tasks come back from the history; keep.sql then says what has become of them.
WITH revived AS (
    DELETE FROM windlass.history AS h
    WHERE h.id = ANY ($1::uuid[]) AND h.state = 'cancelled'
    RETURNING h.*
)

INSERT INTO windlass.task (
    id, root, run_at, created_at, claimed_at, boost, fence, duration, timeout, priority, attempt, max_attempts,
    state, type, queue, tenant, payload, worker, idempotency_key, fingerprint, next, after, result_into, secret,
    trace, enqueued_by, once, rank
)
SELECT
    r.id, r.root, r.run_at, r.created_at, r.claimed_at, r.boost, r.fence, r.duration, r.timeout, r.priority,
    r.attempt, r.max_attempts, 'ready', r.type, r.queue, r.tenant, r.payload, r.worker, r.idempotency_key,
    r.fingerprint, r.next, r.after, r.result_into, r.secret, r.trace, r.enqueued_by, r.once, 0
FROM revived AS r
