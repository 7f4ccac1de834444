-- The number of tasks that match, and when the first of them was due, by dimensions.
SELECT count(*), min(max(task.run_at, task.created_at)) /* :dimensions */
FROM windlass_task AS task /* :index */
WHERE /* :conditions */
/* :group_by */
