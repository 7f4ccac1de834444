-- The number of expired sessions. A scan, as sessions are few.
SELECT count(*)
FROM windlass_session
WHERE expires_at <= :now
