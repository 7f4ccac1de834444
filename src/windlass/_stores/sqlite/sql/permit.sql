-- Set the permits of a task. By rowid.
UPDATE windlass_task
SET permits = ?
WHERE rowid = ?
