-- The id so many rows further on, if there are as many. Uses the unique index on id alone. What no index
-- answers is read a window at a time, because a reader delays every commit for as long as it reads.
SELECT id
FROM windlass_task
WHERE id > :start
ORDER BY id
LIMIT 1 OFFSET :rows
