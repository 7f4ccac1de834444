-- Whole tasks, a page by id; see filters.py for the index that each kind of filter uses.
SELECT /* :task_columns */
FROM windlass_task AS task /* :index */
WHERE /* :conditions */
ORDER BY task.id /* :direction */
LIMIT :limit
