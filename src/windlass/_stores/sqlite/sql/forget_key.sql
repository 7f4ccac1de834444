-- Delete an idempotency key that is kept as long as its task. Uses the primary key.
DELETE FROM windlass_idempotency
WHERE tenant = :tenant AND key = :key AND task_id = :task_id AND until IS NULL
