-- Whether this user has the rights of the owner of the history, who may create and drop its partitions.
SELECT pg_has_role(c.relowner, 'USAGE') FROM pg_catalog.pg_class AS c WHERE c.oid = 'windlass.history'::regclass
