-- Whole tasks, in the order of the rowids given. By rowid.
SELECT /* :task_columns */
FROM json_each(:rowids) AS given
CROSS JOIN windlass_task AS task ON task.rowid = given.value
