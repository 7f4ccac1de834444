-- Store a queue's settings. Stripes that were ever filled are still read, and so are lanes for a while after they
-- were last needed. A head start ($7) that was ever set is kept as a number, also for strict order ($8): tasks may
-- still be ranked by the old one.
INSERT INTO windlass.queue AS q (
    name, paused, stripes, widest, settings, laned, laned_at, head_start, opens_at, closes_at
)
VALUES ($1, $2, $3, $3, $4, $5, coalesce($6::timestamptz, clock_timestamp()), $7, $9, $10)
ON CONFLICT (name) DO UPDATE
SET
    paused = excluded.paused,
    stripes = excluded.stripes,
    widest = greatest(q.widest, excluded.widest),
    settings = excluded.settings,
    laned = q.laned OR excluded.laned,
    laned_at = excluded.laned_at,
    opens_at = excluded.opens_at,
    closes_at = excluded.closes_at,
    head_start = CASE
        WHEN excluded.head_start IS NULL AND q.head_start IS NOT NULL THEN $8 ELSE excluded.head_start
    END
