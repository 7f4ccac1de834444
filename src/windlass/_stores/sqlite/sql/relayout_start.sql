-- Start moving the ready tasks of a queue to their lanes, from the beginning.
INSERT OR REPLACE INTO windlass_rearranging (queue, lane, key, rank, id)
VALUES (:queue, '', '', -9223372036854775808, '')
