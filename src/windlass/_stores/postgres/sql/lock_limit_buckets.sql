-- Lock every bucket of a limit, in order, as lock_buckets.sql does.
SELECT b.key, b.tokens, b.at
FROM windlass.bucket AS b
WHERE b.key >= $1 AND b.key < $2
ORDER BY b.key
FOR UPDATE
