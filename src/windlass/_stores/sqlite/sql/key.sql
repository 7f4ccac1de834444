-- The task of an idempotency key. Uses the primary key.
SELECT task_id, digest
FROM windlass_idempotency
WHERE tenant = :tenant AND key = :key AND (until IS NULL OR until > :now)
