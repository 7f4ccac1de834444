-- Lease tasks of expired sessions to a live one: the fence rises by one, the attempt does not. Sessions that hold
-- tasks are found by one index lookup each.
WITH RECURSIVE clock AS MATERIALIZED (
    SELECT coalesce($1::timestamptz, clock_timestamp()) AS now
),

holder AS (
    (
        SELECT t.session
        FROM windlass.task AS t
        WHERE t.state = 'running'
        ORDER BY t.session
        LIMIT 1
    )
    UNION ALL
    SELECT (
        SELECT t.session
        FROM windlass.task AS t
        WHERE t.state = 'running' AND t.session > holder.session
        ORDER BY t.session
        LIMIT 1
    )
    FROM holder
    WHERE holder.session IS NOT NULL
),

silent AS MATERIALIZED (
    SELECT holder.session
    FROM holder
    WHERE holder.session IS NOT NULL AND NOT EXISTS (
        SELECT FROM windlass.session AS s, clock
        WHERE
            s.id = holder.session AND greatest(
                s.expires_at,
                CASE WHEN $1::timestamptz IS NULL THEN pg_postmaster_start_time() + (s.expires_at - s.beat_at) END
            ) > clock.now
    )
),

picked AS MATERIALIZED (
    SELECT lost.id
    FROM silent
    CROSS JOIN LATERAL (
        SELECT t.id
        FROM windlass.task AS t
        WHERE t.session = silent.session AND t.state = 'running'
        ORDER BY t.session
        LIMIT $3
        FOR UPDATE SKIP LOCKED
    ) AS lost
    LIMIT $3
)

UPDATE windlass.task AS t
SET fence = t.fence + 1, session = $2, claim_number = 0
WHERE t.id = ANY (ARRAY(SELECT picked.id FROM picked))
RETURNING /* :leased_columns */
