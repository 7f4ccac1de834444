-- The schema's indexes, and whether each is valid: one whose creation was interrupted is not.
SELECT c.relname::text, i.indisvalid AND i.indisready
FROM pg_catalog.pg_index AS i
INNER JOIN pg_catalog.pg_class AS c ON c.oid = i.indexrelid
INNER JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = $1::text
