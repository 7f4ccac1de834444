-- Tasks that have not ended, and dead ones. filters.py writes the conditions.
SELECT /* :task_columns */
FROM windlass.task AS t
WHERE /* :conditions */
