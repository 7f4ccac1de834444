-- Mark the tasks of a queue as moved to their lanes. Uses the primary key.
DELETE FROM windlass_rearranging
WHERE queue = :queue
