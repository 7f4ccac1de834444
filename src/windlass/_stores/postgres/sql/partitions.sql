-- The names of the history's partitions; one of them is the default partition.
SELECT c.relname::text
FROM pg_catalog.pg_inherits AS i
INNER JOIN pg_catalog.pg_class AS c ON c.oid = i.inhrelid
WHERE i.inhparent = to_regclass('windlass.history')
ORDER BY c.relname
