-- A page of buckets by key: the starts that rate limits have left. Uses the primary key.
SELECT key, tokens, at
FROM windlass_bucket
WHERE key > :after
ORDER BY key
LIMIT :limit
