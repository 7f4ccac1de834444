-- Insert one task, as enqueue.sql; without arrays it takes a third of the time.
WITH clock AS MATERIALIZED (
    SELECT coalesce($1::timestamptz, clock_timestamp()) AS now
),

made AS (
    INSERT INTO windlass.task (/* :new_columns */, created_at, run_at, expires_at, state, rank)
    SELECT
        /* :new_columns_of_g */, g.now, g.at, coalesce($4::timestamptz, greatest(g.at, g.now) + $5::interval),
        CASE WHEN $6::boolean THEN 'waiting' WHEN g.at > g.now THEN 'scheduled' ELSE 'ready' END,
        floor(extract(EPOCH FROM g.at) * 1000)::bigint - g.boost
    FROM (
        SELECT clock.now, coalesce($2::timestamptz, clock.now + $3::interval, clock.now) AS at, /* :new_values */
        FROM clock
    ) AS g
    WHERE NOT EXISTS (
        SELECT FROM windlass.history AS h
        WHERE h.id = g.id AND h.finished_at >= /* :since */
    )
    ON CONFLICT (id) DO NOTHING
    RETURNING id, CASE state WHEN 'ready' THEN queue WHEN 'scheduled' THEN '' END AS payload, created_at, run_at
)

SELECT
    made.id::text,
    CASE
        WHEN
            made.run_at < made.created_at + interval '1.5 s'
            AND EXISTS (
                SELECT FROM windlass.listener AS l
                WHERE l.until > clock_timestamp() AND made.payload = ANY (l.queues)
            )
            THEN pg_notify('windlass.wake', made.payload)
    END
FROM made
