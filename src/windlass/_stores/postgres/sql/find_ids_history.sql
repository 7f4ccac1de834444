-- The ids of tasks in the history. As find_history.sql.
SELECT h.id::text
FROM windlass.history AS h
WHERE /* :conditions */
