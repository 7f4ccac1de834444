-- The clock: the database's, unless a test hands in its own.
SELECT coalesce($1::timestamptz, clock_timestamp())
