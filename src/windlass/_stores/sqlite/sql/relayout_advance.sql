-- A queue is rearranged up to here. Uses the primary key.
UPDATE windlass_rearranging
SET lane = :lane, key = :key, rank = :rank, id = :id
WHERE queue = :queue
