-- Make due tasks ready, earliest first; returns how many, and when the next is due.
WITH clock AS MATERIALIZED (
    SELECT coalesce($1::timestamptz, clock_timestamp()) AS now
),

due AS MATERIALIZED (
    SELECT t.id, coalesce((SELECT q.head_start FROM windlass.queue AS q WHERE q.name = t.queue), $3) AS head_start
    FROM windlass.task AS t
    WHERE t.state = 'scheduled' AND t.run_at <= (SELECT clock.now FROM clock)
    ORDER BY t.run_at, t.id
    LIMIT $2
    FOR UPDATE OF t SKIP LOCKED
),

ready AS (
    UPDATE windlass.task AS t
    SET
        state = 'ready',
        -- It is put into its lane by the next claim, by what holds then.
        stripe = CASE WHEN t.lane IS NULL THEN t.stripe ELSE 0 END,
        lane = NULL,
        key = NULL,
        -- By the queue's ageing as it is now.
        boost = t.priority * due.head_start,
        rank = t.rank + t.boost - t.priority * due.head_start
    FROM due
    WHERE t.id = due.id
    RETURNING t.queue
),

woken AS MATERIALIZED (
    SELECT pg_notify('windlass.wake', wakes.queue)
    FROM (SELECT DISTINCT ready.queue FROM ready) AS wakes
    WHERE EXISTS (
        SELECT FROM windlass.listener AS l
        WHERE l.until > clock_timestamp() AND wakes.queue = ANY (l.queues)
    )
)

SELECT
    (SELECT count(*) FROM ready),
    (
        SELECT least(t.run_at, '9999-01-01 00:00:00+00') -- older versions stored infinity
        FROM windlass.task AS t
        WHERE t.state = 'scheduled' AND t.id <> ALL (ARRAY(SELECT due.id FROM due))
        ORDER BY t.run_at, t.id
        LIMIT 1
    )
WHERE (SELECT count(*) FROM woken) >= 0
