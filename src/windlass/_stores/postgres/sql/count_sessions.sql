-- The number of sessions.
SELECT count(*)
FROM windlass.session
