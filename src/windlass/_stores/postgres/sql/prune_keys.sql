-- Some of the keys that have run out.
DELETE FROM windlass.idempotency AS i
WHERE (i.tenant, i.key) IN (
    SELECT old.tenant, old.key
    FROM windlass.idempotency AS old
    WHERE old.until <= coalesce($1::timestamptz, clock_timestamp())
    ORDER BY old.until
    LIMIT $2
    FOR UPDATE SKIP LOCKED
)
RETURNING 1
