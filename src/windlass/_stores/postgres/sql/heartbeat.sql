-- Renew a session, or open it if $6, and return what it holds. No row: the session is gone.
WITH clock AS MATERIALIZED (
    SELECT coalesce($1::timestamptz, clock_timestamp()) AS now
),

opened AS (
    INSERT INTO windlass.session AS s (id, worker, about, started_at, beat_at, expires_at)
    SELECT $2, $3, $4, clock.now, clock.now, clock.now + $5::interval
    FROM clock
    WHERE $6::boolean
    ON CONFLICT (id) DO UPDATE
    SET worker = excluded.worker, about = excluded.about, beat_at = excluded.beat_at, expires_at = excluded.expires_at
    RETURNING s.id
),

renewed AS (
    UPDATE windlass.session AS s
    SET worker = $3, about = $4, beat_at = clock.now, expires_at = clock.now + $5::interval
    FROM clock
    WHERE s.id = $2 AND NOT $6::boolean
    RETURNING s.id
)

SELECT t.id::text, t.fence, t.claim_number, t.cancel_requested, t.cancelled_by, t.cancel_reason
FROM (SELECT opened.id FROM opened UNION ALL SELECT renewed.id FROM renewed) AS beating
LEFT JOIN windlass.task AS t ON t.session = $2 AND t.state = 'running'
