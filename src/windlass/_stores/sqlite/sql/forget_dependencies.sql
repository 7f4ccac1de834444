-- A task waits no longer. Uses windlass_dependency_successor.
DELETE FROM windlass_dependency
WHERE successor = :successor
