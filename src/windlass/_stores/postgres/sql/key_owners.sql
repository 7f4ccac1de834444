-- The tasks that idempotency keys belong to.
SELECT i.tenant, i.key, i.task_id::text, i.digest
FROM unnest($1::text[], $2::text[]) AS g (tenant, key)
INNER JOIN windlass.idempotency AS i ON i.tenant = g.tenant AND i.key = g.key
