-- Insert a new task. Keeps every index of the table; the id is known to be new. By position, because
-- batches of tuples are quicker than batches of dictionaries.
INSERT INTO windlass_task (
    id, type, payload, root, queue, tenant, priority, boost, state, attempt, max_attempts, fence, run_at, rank,
    created_at, timeout, idempotency_key, fingerprint, next, after, result_into, secret, trace, enqueued_by
)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 0, ?, 0, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
