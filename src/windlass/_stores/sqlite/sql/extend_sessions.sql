-- Lengthen the leases of all sessions. Scans them: one for each worker.
UPDATE windlass_session
SET expires_at = expires_at + :microseconds
