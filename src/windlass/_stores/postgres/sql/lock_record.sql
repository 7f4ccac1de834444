-- Lock a record, whether it exists or not, until the transaction ends.
SELECT pg_advisory_xact_lock(hashtextextended('windlass.record ' || $1::text || ' ' || $2::text, 0))
