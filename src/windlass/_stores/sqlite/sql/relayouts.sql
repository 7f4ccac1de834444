-- The queues whose tasks are being moved to their lanes, and how far that has got. A scan, as they are few.
SELECT queue, lane, key, rank, id
FROM windlass_rearranging
