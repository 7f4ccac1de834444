-- Insert a bucket for each of these permits' keys, in the order that all transactions use, which avoids deadlocks.
INSERT INTO windlass.bucket (key, at)
SELECT g.key, $2::timestamptz
FROM unnest($1::text[]) WITH ORDINALITY AS g (key, place)
ORDER BY g.place
ON CONFLICT (key) DO NOTHING
