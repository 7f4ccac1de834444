-- Whether there is a schema with a number. Asked where a mistake would break the caller's transaction.
SELECT to_regclass('windlass.schema_version') IS NOT NULL
