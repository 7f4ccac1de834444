-- One plain task, as enqueue.sql: without arrays it takes a third of the time.
WITH clock AS MATERIALIZED (
    SELECT coalesce($1::timestamptz, clock_timestamp()) AS now
),

made AS (
    INSERT INTO windlass.task (
        id, type, payload, root, queue, tenant, priority, boost, max_attempts, timeout, next, result_into,
        secret, trace, enqueued_by, stripe, lane, key, idempotency_key, fingerprint, after, awaited, created_at, run_at,
        state, rank
    )
    SELECT
        $2::uuid, $3::text, $4::bytea, $5::uuid, $6::text, $7::text, $8::integer, $9::bigint, $10::integer,
        $11::interval, $12::bytea, $13::text, $14::text, $15::text, $16::text, $17::smallint, $18::text,
        $19::text, $20::text, $21::text, $22::text, $23::boolean, due.now, due.at,
        CASE WHEN $26::boolean THEN 'waiting' WHEN due.at > due.now THEN 'scheduled' ELSE 'ready' END,
        floor(extract(EPOCH FROM due.at) * 1000)::bigint - $9::bigint
    FROM (
        SELECT clock.now, coalesce($24::timestamptz, clock.now + $25::interval, clock.now) AS at
        FROM clock
    ) AS due
    WHERE NOT EXISTS (
        SELECT FROM windlass.history AS h
        WHERE h.id = $2::uuid AND h.finished_at >= '-infinity'
    )
    ON CONFLICT (id) DO NOTHING
    RETURNING id, CASE state WHEN 'ready' THEN queue WHEN 'scheduled' THEN '' END AS news, created_at, run_at
)

SELECT
    made.id::text,
    CASE
        WHEN
            made.run_at < made.created_at + interval '1.5 s'
            AND EXISTS (
                SELECT FROM windlass.listener AS l
                WHERE l.until > clock_timestamp() AND made.news = ANY (l.queues)
            )
            THEN pg_notify('windlass.wake', made.news)
    END
FROM made
