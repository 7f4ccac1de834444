-- Delete what a task waits for. Uses windlass_dependency_successor.
DELETE FROM windlass_dependency
WHERE successor = :successor
