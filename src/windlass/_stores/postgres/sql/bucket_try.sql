-- As bucket_lock.sql, but what others have locked is left out.
SELECT b.key, b.tokens, b.at
FROM windlass.bucket AS b
WHERE b.key = ANY ($1::text[])
ORDER BY b.key
FOR UPDATE SKIP LOCKED
