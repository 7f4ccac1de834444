-- Store a record, replacing the one of the same kind and name. Uses the primary key.
INSERT INTO windlass_record (kind, name, body) VALUES (:kind, :name, :body)
ON CONFLICT (kind, name) DO UPDATE SET body = excluded.body
