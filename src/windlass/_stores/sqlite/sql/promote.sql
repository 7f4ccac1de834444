-- Make these scheduled tasks ready. By rowid.
UPDATE windlass_task
SET state = 'ready'
WHERE rowid IN (SELECT value FROM json_each(:rowids)) AND state = 'scheduled'
