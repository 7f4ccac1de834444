-- Insert tasks; ids that exist already, here or in the history, are left alone and not returned. The history is
-- searched from the day before the first of these ids was made, as a task cannot have ended earlier. That day is a
-- literal, so that the planner leaves out older partitions.
WITH clock AS MATERIALIZED (
    SELECT coalesce($1::timestamptz, clock_timestamp()) AS now
),

made AS (
    INSERT INTO windlass.task (/* :new_columns */, created_at, run_at, expires_at, state, rank)
    SELECT
        /* :new_columns_of_g */, clock.now, due.at, coalesce(g.expires_at, greatest(due.at, clock.now) + g.expires_in),
        CASE WHEN g.waiting THEN 'waiting' WHEN due.at > clock.now THEN 'scheduled' ELSE 'ready' END,
        floor(extract(EPOCH FROM due.at) * 1000)::bigint - g.boost
    FROM clock
    CROSS JOIN unnest(
        $2::timestamptz[], $3::interval[], $4::timestamptz[], $5::interval[], $6::boolean[], /* :new_arrays */
    ) AS g (run_at, delay, expires_at, expires_in, waiting, /* :new_columns */)
    CROSS JOIN LATERAL (SELECT coalesce(g.run_at, clock.now + g.delay, clock.now) AS at) AS due
    WHERE NOT EXISTS (
        SELECT FROM windlass.history AS h
        WHERE h.id = g.id AND h.finished_at >= /* :since */
    )
    ON CONFLICT (id) DO NOTHING
    RETURNING id, queue, state, run_at
),

woken AS MATERIALIZED (
    SELECT pg_notify('windlass.wake', wakes.queue)
    FROM (
        SELECT DISTINCT CASE made.state WHEN 'ready' THEN made.queue ELSE '' END AS queue
        FROM made, clock
        WHERE made.state = 'ready' OR (made.state = 'scheduled' AND made.run_at < clock.now + interval '1.5 s')
    ) AS wakes
    WHERE EXISTS (
        SELECT FROM windlass.listener AS l
        WHERE l.until > clock_timestamp() AND wakes.queue = ANY (l.queues)
    )
)

SELECT made.id::text
FROM made
WHERE (SELECT count(*) FROM woken) >= 0
