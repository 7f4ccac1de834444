-- The number of dependencies, counted up to a limit: at least the number of waiting tasks.
SELECT count(*)
FROM (SELECT 1 FROM windlass_dependency LIMIT :limit)
