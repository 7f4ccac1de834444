-- The buckets of a limit, which is the range of keys from first to below. Uses the primary key.
SELECT key, tokens, at
FROM windlass_bucket
WHERE key >= :first AND key < :below
