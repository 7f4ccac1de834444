-- The number of pages of the table of tasks, and of each partition of the history.
SELECT c.relname::text, pg_catalog.pg_relation_size(c.oid) / current_setting('block_size')::bigint
FROM pg_catalog.pg_class AS c
WHERE
    c.oid = to_regclass('windlass.task')
    OR c.oid IN (SELECT i.inhrelid FROM pg_catalog.pg_inherits AS i WHERE i.inhparent = to_regclass('windlass.history'))
