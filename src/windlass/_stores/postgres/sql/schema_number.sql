-- The version of the schema. One row at most.
SELECT number FROM windlass.schema_version
