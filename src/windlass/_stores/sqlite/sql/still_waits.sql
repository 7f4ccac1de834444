-- Whether a task still waits for one that has not completed. Uses windlass_dependency_successor and the
-- unique index on id.
SELECT 1
FROM windlass_dependency AS dependency
JOIN windlass_task AS task ON task.id = dependency.predecessor
WHERE dependency.successor = :successor AND task.state <> 'completed'
LIMIT 1
