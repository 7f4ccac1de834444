-- Lease these ready tasks to a session: fence and attempt rise by one. By rowid.
UPDATE windlass_task
SET
    state = 'running', fence = fence + 1, attempt = attempt + 1, claimed_at = :now, session = :session,
    claim_number = :number, worker = :worker, progress_fraction = NULL, progress_message = NULL
WHERE rowid IN (SELECT value FROM json_each(:rowids)) AND state = 'ready'
