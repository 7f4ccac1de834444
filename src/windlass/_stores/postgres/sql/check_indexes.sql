-- The schema's indexes, and whether each can be used: one whose making broke off cannot.
SELECT c.relname::text, i.indisvalid AND i.indisready
FROM pg_catalog.pg_index AS i
INNER JOIN pg_catalog.pg_class AS c ON c.oid = i.indexrelid
INNER JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = $1::text
