-- As lock_buckets.sql, but leaves out buckets that others have locked.
SELECT b.key, b.tokens, b.at
FROM windlass.bucket AS b
WHERE b.key = ANY ($1::text[])
ORDER BY b.key
FOR UPDATE SKIP LOCKED
