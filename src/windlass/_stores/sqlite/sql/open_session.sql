-- Open a session, or renew it. Uses the primary key.
INSERT INTO windlass_session (id, worker, about, started_at, beat_at, expires_at)
VALUES (:session, :worker, :about, :now, :now, :expires_at)
ON CONFLICT (id) DO UPDATE
SET worker = excluded.worker, about = excluded.about, beat_at = excluded.beat_at, expires_at = excluded.expires_at
