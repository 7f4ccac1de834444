-- Store a queue's settings. Stripes that were ever filled are still read, and so are lanes for a while after they
-- were last needed.
INSERT INTO windlass.queue AS q (name, paused, stripes, widest, settings, laned, laned_at)
VALUES ($1, $2, $3, $3, $4, $5, coalesce($6::timestamptz, clock_timestamp()))
ON CONFLICT (name) DO UPDATE
SET
    paused = excluded.paused,
    stripes = excluded.stripes,
    widest = greatest(q.widest, excluded.widest),
    settings = excluded.settings,
    laned = q.laned OR excluded.laned,
    laned_at = excluded.laned_at
