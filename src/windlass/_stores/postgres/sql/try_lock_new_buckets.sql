-- As lock_new_buckets.sql, but does not wait: returns whether this transaction may insert buckets.
SELECT pg_try_advisory_xact_lock(hashtextextended('windlass.bucket', 0))
