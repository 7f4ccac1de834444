-- Give a task its permits. By rowid.
UPDATE windlass_task
SET permits = ?
WHERE rowid = ?
