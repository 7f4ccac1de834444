-- Mark these queues ('' is all queues) as guarded: only claims that count permits take from them.
INSERT INTO windlass.queue AS q (name, paused, stripes, widest, laned, laned_at, guarded)
SELECT g.name, false, 1, 1, true, coalesce($2::timestamptz, clock_timestamp()), true
FROM unnest($1::text[]) AS g (name)
ORDER BY g.name
ON CONFLICT (name) DO UPDATE SET laned = true, laned_at = excluded.laned_at, guarded = true
