-- Store the version of the schema.
INSERT INTO windlass.schema_version (single, number)
VALUES (1, $1)
ON CONFLICT (single) DO UPDATE SET number = excluded.number
