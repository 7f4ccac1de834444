-- A page of the buckets of existing limits by key. Uses the primary key.
SELECT key, tokens, at
FROM windlass_bucket
WHERE
    key > :after
    AND EXISTS (
        SELECT 1
        FROM windlass_record
        WHERE kind = 'limit' AND name = substr(windlass_bucket.key, 1, instr(windlass_bucket.key, char(31)) - 1)
    )
ORDER BY key
LIMIT :limit
