-- Tasks with all columns, in the order of the given rowids. By rowid.
SELECT /* :task_columns */
FROM json_each(:rowids) AS given
CROSS JOIN windlass_task AS task ON task.rowid = given.value
