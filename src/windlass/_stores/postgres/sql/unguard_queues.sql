-- Mark all queues but these ('' is all queues) as not guarded by a limit.
UPDATE windlass.queue AS q
SET guarded = false, laned_at = coalesce($2::timestamptz, clock_timestamp())
WHERE q.guarded AND q.name <> ALL ($1::text[])
