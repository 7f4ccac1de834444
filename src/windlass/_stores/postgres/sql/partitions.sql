-- The history's partitions, by name; one of them takes what no day's does.
SELECT c.relname::text
FROM pg_catalog.pg_inherits AS i
INNER JOIN pg_catalog.pg_class AS c ON c.oid = i.inhrelid
WHERE i.inhparent = to_regclass('windlass.history')
ORDER BY c.relname
