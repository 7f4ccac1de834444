-- Store the starts that a rate limit has left under a permit. Uses the primary key.
INSERT INTO windlass_bucket (key, tokens, at) VALUES (:key, :tokens, :now)
ON CONFLICT (key) DO UPDATE SET tokens = excluded.tokens, at = excluded.at
