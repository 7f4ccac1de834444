-- Lock the buckets of these permits' keys, in order: until the transaction ends no other claim gets permits of them.
SELECT b.key, b.tokens, b.at
FROM windlass.bucket AS b
WHERE b.key = ANY ($1::text[])
ORDER BY b.key
FOR UPDATE
