-- Lock these fingerprints until the transaction ends.
SELECT pg_advisory_xact_lock(hashtextextended('windlass.task' || g.fingerprint, 0))
FROM unnest($1::text[]) AS g (fingerprint)
