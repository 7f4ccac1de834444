-- Delete what tasks wait for, or need the results of. Uses windlass_dependency_successor.
DELETE FROM windlass_dependency
WHERE successor IN (SELECT value FROM json_each(:successors))
