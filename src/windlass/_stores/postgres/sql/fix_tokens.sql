-- Compute the tokens of a limit whose rate changes as of now, by the old rate. Its buckets are locked.
UPDATE windlass.bucket AS b
SET
    tokens = least(b.tokens + $3::float8 * greatest(extract(EPOCH FROM clock.now - b.at)::float8, 0), $4::float8),
    at = clock.now
FROM coalesce($5::timestamptz, clock_timestamp()) AS clock (now)
WHERE b.key >= $1 AND b.key < $2 AND b.tokens IS NOT NULL
