-- Insert a bucket for each of these permits' keys, unless there is one. Needs lock_new_buckets.sql: an insert waits for
-- another transaction that has inserted the same key, which may wait for a bucket that this one has locked.
INSERT INTO windlass.bucket (key, at)
SELECT g.key, $2::timestamptz
FROM unnest($1::text[]) AS g (key)
ON CONFLICT (key) DO NOTHING
