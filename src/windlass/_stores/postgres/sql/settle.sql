-- The hot path in one round trip: complete the tasks whose leases hold and, if that was all of them, claim.
-- Completed tasks move to the history. Tasks that others wait for, and those that take results of others, are left to
-- the rules, see settle.py.
-- statements.py puts in the candidates to claim.
-- Claimed rows are updated by ctid and not by id. One that has changed since the statement began is missed; it is
-- still ready, and the next claim finds it.
-- IS NOT DISTINCT FROM keeps the planner off the index of running tasks, which looks small by stale statistics and
-- would be read once for every task.
WITH clock AS MATERIALIZED (
    SELECT coalesce($1::timestamptz, clock_timestamp()) AS now
),

done AS (
    DELETE FROM windlass.task AS t
    USING unnest($2::uuid[], $3::bigint[], $4::double precision[], $5::text[], $6::bytea[])
        AS g (id, fence, duration, outcome, result)
    WHERE t.id = g.id AND t.fence = g.fence AND t.state IS NOT DISTINCT FROM 'running' AND NOT t.awaited
        AND (t.result_into IS NULL OR t.after IS NULL)
    RETURNING
        /* :fixed_columns_of_t */, t.run_at, t.fence, t.attempt, t.cancel_requested, t.cancelled_by, t.cancel_reason,
        t.worker, t.progress_fraction, t.progress_message, t.limited, g.duration, coalesce(g.outcome, ($5::text[])[1]) AS outcome, g.result
),

kept AS (
    INSERT INTO windlass.history (
        /* :fixed_columns */, run_at, fence, attempt, cancel_requested, cancelled_by, cancel_reason, worker,
        progress_fraction, progress_message, duration, outcome, result, finished_at, state
    )
    SELECT
        /* :fixed_columns_of_done */, done.run_at, done.fence, done.attempt, done.cancel_requested,
        done.cancelled_by, done.cancel_reason, done.worker, done.progress_fraction, done.progress_message, done.duration, done.outcome, done.result, clock.now,
        'completed'
    FROM done, clock
),

settled AS MATERIALIZED (
    SELECT
        count(*) = cardinality($2::uuid[]) AS complete,
        bool_or(done.limited) AS freed,
        CASE WHEN count(*) < cardinality($2::uuid[]) THEN array_agg(done.id::text) END AS ids
    FROM done
),

-- A session lives for one lease more after the server was started: its heartbeats could not get through.
alive AS MATERIALIZED (
    SELECT s.worker
    FROM windlass.session AS s, clock, settled
    WHERE
        s.id = $7 AND settled.complete AND greatest(
            s.expires_at,
            CASE WHEN $1::timestamptz IS NULL THEN pg_postmaster_start_time() + (s.expires_at - s.beat_at) END
        ) > clock.now
),

-- Queues of these that give nothing now, or not like this: where limits apply, only a claim that counts may take.
closed AS MATERIALIZED (
    SELECT q.name, q.guarded
    FROM windlass.queue AS q, clock
    WHERE
        (q.paused OR q.guarded OR NOT (q.opens_at <= clock.now AND clock.now < q.closes_at))
        AND /* :is_named */
),

/* :shares */
picked AS MATERIALIZED (
    SELECT first.ctid
    FROM (
        /* :candidates */
    ) AS first
    ORDER BY first.rank, first.id
    LIMIT $10
),

claimed AS (
    UPDATE windlass.task AS t
    SET
        state = 'running',
        fence = t.fence + 1,
        attempt = t.attempt + 1,
        claimed_at = (SELECT clock.now FROM clock),
        session = $7,
        claim_number = $11,
        worker = (SELECT alive.worker FROM alive),
        progress_fraction = NULL,
        progress_message = NULL
    WHERE t.ctid = ANY (ARRAY(SELECT picked.ctid FROM picked))
    RETURNING /* :leased_columns */, t.rank
)

SELECT
    settled.complete, settled.ids, (SELECT alive.worker FROM alive), (SELECT bool_or(closed.guarded) FROM closed),
    /* :missed */, claimed.*
FROM settled
LEFT JOIN claimed ON true
WHERE
    -- A permit given back may let something start, wherever it waits.
    CASE
        WHEN settled.freed THEN (
            SELECT count(pg_notify('windlass.wake', wakes.queue))
            FROM windlass.listener AS l
            CROSS JOIN LATERAL unnest(l.queues) AS wakes (queue)
            WHERE l.until > clock_timestamp() AND wakes.queue <> ''
        ) >= 0
        ELSE true
    END
