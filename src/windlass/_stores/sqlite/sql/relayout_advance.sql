-- Record how far the tasks of a queue have been moved to their lanes. Uses the primary key.
UPDATE windlass_rearranging
SET lane = :lane, key = :key, rank = :rank, id = :id
WHERE queue = :queue
