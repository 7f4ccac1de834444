-- The id a number of rows before this one; no row if there are fewer. Covered by the unique index on id; see
-- window.sql.
SELECT id
FROM windlass_task
WHERE id < :start
ORDER BY id DESC
LIMIT 1 OFFSET :rows
