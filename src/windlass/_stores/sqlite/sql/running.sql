-- All running tasks with what limits depend on. Uses windlass_task_running.
SELECT queue, type, tenant, payload, rowid, permits
FROM windlass_task INDEXED BY windlass_task_running
WHERE state = 'running'
