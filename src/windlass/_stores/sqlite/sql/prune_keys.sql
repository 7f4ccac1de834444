-- Delete expired idempotency keys. Uses windlass_idempotency_until.
DELETE FROM windlass_idempotency
WHERE (tenant, key) IN (
    SELECT tenant, key
    FROM windlass_idempotency
    WHERE until <= :now
    ORDER BY until
    LIMIT :limit
)
