-- The starts that are left under permits, a window by key. Uses the primary key.
SELECT key, tokens, at
FROM windlass_bucket
WHERE key > :after
ORDER BY key
LIMIT :limit
