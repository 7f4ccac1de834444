-- Insert a new task that has a lane or a key: as enqueue.sql, with these two besides. Keeps every index of the
-- table; the id is known to be new.
INSERT INTO windlass_task (
    id, type, payload, root, queue, tenant, priority, boost, state, attempt, max_attempts, fence, run_at, rank,
    created_at, timeout, idempotency_key, fingerprint, next, after, result_into, secret, trace, enqueued_by,
    lane, key
)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 0, ?, 0, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
