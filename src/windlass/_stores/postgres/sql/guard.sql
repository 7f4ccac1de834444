-- From now on only claims that count take tasks of these queues ('' for all), and of no others. Those that had
-- lanes for the sake of a limit keep them for a while.
INSERT INTO windlass.queue AS q (name, paused, stripes, widest, laned, laned_at, guarded)
SELECT g.name, false, 1, 1, true, coalesce($2::timestamptz, clock_timestamp()), true
FROM unnest($1::text[]) AS g (name)
ORDER BY g.name
ON CONFLICT (name) DO UPDATE SET laned = true, laned_at = excluded.laned_at, guarded = true
