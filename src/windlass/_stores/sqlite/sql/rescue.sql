-- Lease running tasks of expired sessions to a live one: the fence rises by one, the attempt does not, and worker
-- still names the old worker. By rowid.
UPDATE windlass_task
SET fence = fence + 1, session = :session, claim_number = :number
WHERE rowid IN (SELECT value FROM json_each(:rowids)) AND state = 'running'
