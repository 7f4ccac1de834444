-- These scheduled tasks, with what lanes and limits depend on. By rowid.
SELECT task.queue, task.type, task.tenant, task.payload, task.rowid, task.priority
FROM json_each(:rowids) AS given
CROSS JOIN windlass_task AS task ON task.rowid = given.value
