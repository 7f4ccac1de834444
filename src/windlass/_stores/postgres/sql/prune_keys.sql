-- Delete some expired idempotency keys.
DELETE FROM windlass.idempotency AS i
WHERE i.ctid = ANY (
    ARRAY(
        SELECT old.ctid
        FROM windlass.idempotency AS old
        WHERE old.until <= (SELECT coalesce($1::timestamptz, clock_timestamp()))
        ORDER BY old.until
        LIMIT $2
        FOR UPDATE SKIP LOCKED
    )
)
RETURNING 1
