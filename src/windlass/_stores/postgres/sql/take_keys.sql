-- Insert the idempotency keys that are free or have expired, in order. Other transactions that want one of them
-- wait until this one ends.
INSERT INTO windlass.idempotency AS i (tenant, key, task_id, digest, until)
SELECT g.tenant, g.key, g.task_id, g.digest, g.until
FROM unnest($2::text[], $3::text[], $4::uuid[], $5::text[], $6::timestamptz[]) AS g (tenant, key, task_id, digest, until)
ON CONFLICT (tenant, key) DO UPDATE
SET task_id = excluded.task_id, digest = excluded.digest, until = excluded.until
WHERE i.until <= $1::timestamptz
RETURNING i.tenant, i.key
