-- The last heartbeat of any session. There are few sessions: a scan.
SELECT max(beat_at)
FROM windlass_session
