-- What an idempotency key stands for. Uses the primary key.
SELECT task_id, digest
FROM windlass_idempotency
WHERE tenant = :tenant AND key = :key AND (until IS NULL OR until > :now)
