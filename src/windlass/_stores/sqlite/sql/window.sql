-- The id a number of rows after this one; no row if there are fewer. Covered by the unique index on id. Filters
-- without an index are applied one window at a time, because a reader delays every commit while it reads.
SELECT id
FROM windlass_task
WHERE id > :start
ORDER BY id
LIMIT 1 OFFSET :rows
