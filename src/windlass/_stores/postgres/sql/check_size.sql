-- The bytes of the schema's tables, with their indexes and long values.
SELECT coalesce(sum(pg_catalog.pg_total_relation_size(c.oid)), 0)::bigint
FROM pg_catalog.pg_class AS c
INNER JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = $1::text AND c.relkind = 'r'
