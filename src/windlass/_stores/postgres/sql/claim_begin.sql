-- What a claim under lanes or limits depends on. First row: the clock, and the worker of the session if it is
-- alive. Then for each queue whether it is paused or closed, its settings, whether it has lanes, whether its tasks are being
-- moved, and whether ready tasks of it are outside its lanes. Then the limits.
WITH clock AS MATERIALIZED (
    SELECT coalesce($1::timestamptz, clock_timestamp()) AS now
)

SELECT
    clock.now,
    (
        SELECT s.worker
        FROM windlass.session AS s
        WHERE
            s.id = $2 AND greatest(
                s.expires_at,
                CASE WHEN $1::timestamptz IS NULL THEN pg_postmaster_start_time() + (s.expires_at - s.beat_at) END
            ) > clock.now
    ) AS worker,
    NULL::text AS queue,
    NULL::boolean AS paused,
    NULL::text AS body,
    NULL::boolean AS laned,
    NULL::boolean AS unsettled,
    NULL::boolean AS outside
FROM clock
UNION ALL
SELECT
    NULL, NULL, g.queue,
    coalesce(q.paused OR NOT (q.opens_at <= clock.now AND clock.now < q.closes_at), q.paused, false),
    q.settings,
    coalesce(q.laned OR q.guarded, false) OR EXISTS (
        SELECT FROM windlass.queue AS every WHERE every.name = '' AND (every.laned OR every.guarded)
    ),
    coalesce(q.unsettled, false) OR EXISTS (
        SELECT FROM windlass.queue AS every WHERE every.name = '' AND every.unsettled
    ),
    (
        SELECT true
        FROM windlass.task AS t
        WHERE t.state = 'ready' AND t.queue = g.queue AND t.stripe >= 0
        ORDER BY t.queue, t.stripe, t.rank
        LIMIT 1
    )
FROM clock
CROSS JOIN unnest($3::text[]) AS g (queue)
LEFT JOIN windlass.queue AS q ON g.queue = q.name
UNION ALL
SELECT NULL, NULL, NULL, NULL, r.body, NULL, NULL, NULL
FROM windlass.record AS r
WHERE r.kind = 'limit'
