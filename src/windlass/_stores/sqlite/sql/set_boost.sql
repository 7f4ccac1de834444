-- Rank a task by another head start of its priority. By rowid.
UPDATE windlass_task
SET boost = ?1, rank = rank + boost - ?1
WHERE rowid = ?2
