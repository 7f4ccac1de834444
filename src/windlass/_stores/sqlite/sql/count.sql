-- How many tasks match, and when the first of them was due. The conditions of the filter take the place of "TRUE", the dimensions that of "1".
SELECT count(*), min(max(task.run_at, task.created_at)), 1
FROM windlass_task AS task
WHERE TRUE
GROUP BY 3
