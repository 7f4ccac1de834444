-- A page of tasks by id; filters.py chooses the index for each kind of filter.
SELECT /* :task_columns */
FROM windlass_task AS task /* :index */
WHERE /* :conditions */
ORDER BY task.id /* :direction */
LIMIT :limit
