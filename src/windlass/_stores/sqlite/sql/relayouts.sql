-- The queues that are being rearranged, and how far that has come. There are few: a scan.
SELECT queue, lane, key, rank, id
FROM windlass_rearranging
