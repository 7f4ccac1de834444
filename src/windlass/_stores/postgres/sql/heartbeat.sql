-- Renew sessions, or open those that say so, and return what each holds. No row: the session is gone.
-- LATERAL and OFFSET 0 make the planner look up each session's tasks. While statistics say that few tasks run, it
-- would go through all of them instead.
WITH clock AS MATERIALIZED (
    SELECT coalesce($1::timestamptz, clock_timestamp()) AS now
),

beating AS MATERIALIZED (
    SELECT b.id, b.worker, b.about, clock.now, clock.now + b.lease_for AS expires_at, b.opening
    FROM unnest($2::text[], $3::text[], $4::text[], $5::interval[], $6::boolean[])
        AS b (id, worker, about, lease_for, opening)
    CROSS JOIN clock
),

opened AS (
    INSERT INTO windlass.session AS s (id, worker, about, started_at, beat_at, expires_at)
    SELECT b.id, b.worker, b.about, b.now, b.now, b.expires_at
    FROM beating AS b
    WHERE b.opening
    ON CONFLICT (id) DO UPDATE
    SET worker = excluded.worker, about = excluded.about, beat_at = excluded.beat_at, expires_at = excluded.expires_at
    RETURNING s.id
),

renewed AS (
    UPDATE windlass.session AS s
    SET worker = b.worker, about = b.about, beat_at = b.now, expires_at = b.expires_at
    FROM beating AS b
    WHERE s.id = b.id AND NOT b.opening
    RETURNING s.id
)

SELECT
    alive.id, t.id::text, t.fence, t.claim_number, t.cancel_requested, t.cancelled_by, t.cancel_reason
FROM (SELECT opened.id FROM opened UNION ALL SELECT renewed.id FROM renewed) AS alive
LEFT JOIN LATERAL (
    SELECT h.id, h.fence, h.claim_number, h.cancel_requested, h.cancelled_by, h.cancel_reason
    FROM windlass.task AS h
    WHERE h.session = alive.id AND h.state = 'running'
    OFFSET 0
) AS t ON true
