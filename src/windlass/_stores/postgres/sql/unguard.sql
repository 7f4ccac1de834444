-- No limit applies to any queue but these ('' for all).
UPDATE windlass.queue AS q
SET guarded = false, laned_at = coalesce($2::timestamptz, clock_timestamp())
WHERE q.guarded AND q.name <> ALL ($1::text[])
