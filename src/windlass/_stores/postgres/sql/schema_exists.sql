-- Whether there is a schema with a version. Cannot fail, which would abort the caller's transaction.
SELECT to_regclass('windlass.schema_version') IS NOT NULL
