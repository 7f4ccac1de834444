-- Put a task where it belongs by what holds now. By rowid.
UPDATE windlass_task
SET lane = ?, key = ?
WHERE rowid = ?
