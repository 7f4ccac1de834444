-- A limit's rate changes: what it gave until now stands. Uses the primary key.
UPDATE windlass_bucket
SET tokens = min(tokens + :rate * max(:now - at, 0) / 1000000.0, :capacity), at = :now
WHERE key >= :first AND key < :below
