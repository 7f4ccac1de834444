-- The schema's tables: whether each is unlogged or excluded from autovacuum, and its live and dead rows.
SELECT
    c.relname::text,
    c.relpersistence = 'u',
    coalesce('autovacuum_enabled=false' = ANY (c.reloptions), false),
    coalesce(s.n_live_tup, 0),
    coalesce(s.n_dead_tup, 0),
    greatest(s.last_vacuum, s.last_autovacuum)
FROM pg_catalog.pg_class AS c
INNER JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
LEFT JOIN pg_catalog.pg_stat_all_tables AS s ON s.relid = c.oid
WHERE n.nspname = $1::text AND c.relkind IN ('r', 'p')
ORDER BY c.relname
