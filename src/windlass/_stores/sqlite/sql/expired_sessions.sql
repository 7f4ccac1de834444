-- How many sessions have run out. There are few sessions: a scan.
SELECT count(*)
FROM windlass_session
WHERE expires_at <= :now
