-- The ids of tasks, a page of them. The conditions of the filter take the place of "TRUE", as in find.sql.
SELECT task.id
FROM windlass_task AS task
WHERE TRUE
ORDER BY task.id
LIMIT :limit
