-- Queues with stripes, lanes, limits, ageing or windows: how many stripes to fill and to read, whether they have lanes,
-- whether claims must count permits, their settings, the head start of one priority, and the present or next opening
-- with the instant at which this is read. Then the limits, without a name.
SELECT
    q.name, q.stripes, q.widest, q.laned OR q.guarded, q.guarded OR q.unsettled, q.settings, q.head_start, q.opens_at,
    q.closes_at, CASE WHEN q.opens_at IS NOT NULL THEN coalesce($1::timestamptz, clock_timestamp()) END
FROM windlass.queue AS q
WHERE
    q.widest > 1 OR q.laned OR q.guarded OR q.unsettled OR q.head_start IS NOT NULL OR q.opens_at IS NOT NULL
UNION ALL
SELECT NULL, NULL, NULL, NULL, NULL, r.body, NULL, NULL, NULL, NULL
FROM windlass.record AS r
WHERE r.kind = 'limit'
