-- Lease running tasks of silent sessions to a live one: the fence rises, the attempt does not count again,
-- and worker still names the one that fell silent. By rowid.
UPDATE windlass_task
SET fence = fence + 1, session = :session, claim_number = :number
WHERE rowid IN (SELECT value FROM json_each(:rowids)) AND state = 'running'
