-- Lock these permits' keys, in order: until this transaction has ended nobody else is given anything of them.
SELECT b.key, b.tokens, b.at
FROM windlass.bucket AS b
WHERE b.key = ANY ($1::text[])
ORDER BY b.key
FOR UPDATE
