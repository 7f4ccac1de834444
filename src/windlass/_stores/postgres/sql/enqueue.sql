-- Plain tasks, any number: no key, no fingerprint, nobody to wait for. What stands already, here or in the
-- history, stays as it is and is not among the answers. The history is asked from the day on which the first
-- of these ids was made, less one: a task cannot have ended before; that day is put in as text, so that the
-- planner leaves the older partitions out.
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
        g.id, g.type, g.payload, g.root, g.queue, g.tenant, g.priority, g.boost, g.max_attempts, g.timeout, g.next,
        g.result_into, g.secret, g.trace, g.enqueued_by, g.stripe, g.lane, g.key, g.idempotency_key, g.fingerprint,
        g.after, g.awaited, clock.now, due.at,
        CASE WHEN g.waiting THEN 'waiting' WHEN due.at > clock.now THEN 'scheduled' ELSE 'ready' END,
        floor(extract(EPOCH FROM due.at) * 1000)::bigint - g.boost
    FROM clock
    CROSS JOIN unnest(
        $2::uuid[], $3::text[], $4::bytea[], $5::uuid[], $6::text[], $7::text[], $8::integer[], $9::bigint[],
        $10::integer[], $11::interval[], $12::bytea[], $13::text[], $14::text[], $15::text[], $16::text[],
        $17::smallint[], $18::text[], $19::text[], $20::text[], $21::text[], $22::text[], $23::boolean[],
        $24::timestamptz[], $25::interval[], $26::boolean[]
    ) AS g (
        id, type, payload, root, queue, tenant, priority, boost, max_attempts, timeout, next, result_into, secret,
        trace, enqueued_by, stripe, lane, key, idempotency_key, fingerprint, after, awaited, run_at, delay, waiting
    )
    CROSS JOIN LATERAL (SELECT coalesce(g.run_at, clock.now + g.delay, clock.now) AS at) AS due
    WHERE NOT EXISTS (
        SELECT FROM windlass.history AS h
        WHERE h.id = g.id AND h.finished_at >= '-infinity'
    )
    ON CONFLICT (id) DO NOTHING
    RETURNING id, queue, state, run_at
),

woken AS MATERIALIZED (
    SELECT pg_notify('windlass.wake', news.queue)
    FROM (
        SELECT DISTINCT CASE made.state WHEN 'ready' THEN made.queue ELSE '' END AS queue
        FROM made, clock
        WHERE made.state = 'ready' OR (made.state = 'scheduled' AND made.run_at < clock.now + interval '1.5 s')
    ) AS news
    WHERE EXISTS (
        SELECT FROM windlass.listener AS l
        WHERE l.until > clock_timestamp() AND news.queue = ANY (l.queues)
    )
)

SELECT made.id::text
FROM made
WHERE (SELECT count(*) FROM woken) >= 0
