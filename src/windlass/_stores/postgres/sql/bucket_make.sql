-- A row for each of these permits' keys; in their order, as everybody makes them.
INSERT INTO windlass.bucket (key, at)
SELECT g.key, $2::timestamptz
FROM unnest($1::text[]) WITH ORDINALITY AS g (key, place)
ORDER BY g.place
ON CONFLICT (key) DO NOTHING
