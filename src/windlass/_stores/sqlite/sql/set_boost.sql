-- Rank a task by another head start of its priority. By rowid.
UPDATE windlass_task
SET boost = :boost, rank = rank + boost - :boost
WHERE rowid = :rowid
