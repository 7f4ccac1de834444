-- Move a task to the lane where it belongs now. By rowid.
UPDATE windlass_task
SET lane = ?, key = ?
WHERE rowid = ?
