-- The ids of a page of tasks; indexes as in find.sql.
SELECT task.id
FROM windlass_task AS task /* :index */
WHERE /* :conditions */
ORDER BY task.id /* :direction */
LIMIT :limit
