-- The ids of tasks that have not ended, and of dead ones. As find.sql.
SELECT t.id::text
FROM windlass.task AS t
WHERE /* :conditions */
