-- The clock: a test's if given, else the database's.
SELECT coalesce($1::timestamptz, clock_timestamp())
