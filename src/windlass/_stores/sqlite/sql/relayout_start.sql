-- Have the ready tasks of a queue put where they belong, from the beginning on.
INSERT OR REPLACE INTO windlass_rearranging (queue, lane, key, rank, id)
VALUES (:queue, '', '', -9223372036854775808, '')
