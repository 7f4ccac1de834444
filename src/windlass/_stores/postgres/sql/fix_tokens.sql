-- Set the tokens of these locked buckets as of an instant.
UPDATE windlass.bucket AS b
SET tokens = g.tokens, at = $3::timestamptz
FROM unnest($1::text[], $2::float8[]) AS g (key, tokens)
WHERE b.key = g.key
