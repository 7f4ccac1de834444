-- How many dependencies there are, up to a limit: no fewer than there are waiting tasks.
SELECT count(*)
FROM (SELECT 1 FROM windlass_dependency LIMIT :limit)
