-- Where the schema stands. One row at most.
SELECT number FROM windlass.schema_version
