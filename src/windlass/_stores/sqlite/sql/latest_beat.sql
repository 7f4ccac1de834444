-- The latest heartbeat of any session. A scan, as sessions are few.
SELECT max(beat_at)
FROM windlass_session
