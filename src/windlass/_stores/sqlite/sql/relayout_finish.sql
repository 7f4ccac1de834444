-- A queue is rearranged. Uses the primary key.
DELETE FROM windlass_rearranging
WHERE queue = :queue
