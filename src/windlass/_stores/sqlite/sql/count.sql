-- The number of tasks that match, when the first of them was due, and their sizes, by dimensions.
SELECT count(*), min(max(task.run_at, task.created_at)) /* :sizes */ /* :dimensions */
FROM windlass_task AS task /* :index */
WHERE /* :conditions */
/* :group_by */
