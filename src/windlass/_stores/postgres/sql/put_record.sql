-- Store a record in place of the one of the same kind and name.
INSERT INTO windlass.record (kind, name, body) VALUES ($1, $2, $3)
ON CONFLICT (kind, name) DO UPDATE SET body = excluded.body
