-- Wait until no other transaction inserts buckets, and keep others from it until this one ends. To be called before any
-- bucket is locked: who waits here then holds none that others wait for.
SELECT pg_advisory_xact_lock(hashtextextended('windlass.bucket', 0)) IS NOT NULL
