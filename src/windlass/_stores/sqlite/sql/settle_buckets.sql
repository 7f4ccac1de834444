-- Compute the tokens of a limit whose rate changes as of now, by the old rate. Uses the primary key.
UPDATE windlass_bucket
SET tokens = min(tokens + :rate * max(:now - at, 0) / 1000000.0, :capacity), at = :now
WHERE key >= :first AND key < :below
