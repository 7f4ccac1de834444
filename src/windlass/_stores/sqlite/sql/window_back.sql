-- The id so many rows further back, if there are as many. Uses the unique index on id alone; see window.sql.
SELECT id
FROM windlass_task
WHERE id < :start
ORDER BY id DESC
LIMIT 1 OFFSET :rows
