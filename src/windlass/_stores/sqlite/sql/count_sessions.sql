-- The number of sessions.
SELECT count(*)
FROM windlass_session
