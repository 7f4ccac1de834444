-- The hot path, one round trip: complete those whose leases hold and, if that was all of them, claim.
-- Completed tasks leave the table for the history. A task that another waits for is left to the longer way.
-- The queues to claim from are put in as arms; see arms.py.
-- A claimed row is found again by where it lies, not by its id. One that was changed since the statement began
-- is then missed; it is still ready, and the next look finds it.
-- IS NOT DISTINCT FROM is there to keep the planner off the index of running tasks, which by stale statistics
-- looks small to it: it would be gone through once for every task.
WITH clock AS MATERIALIZED (
    SELECT coalesce($1::timestamptz, clock_timestamp()) AS now
),

done AS (
    DELETE FROM windlass.task AS t
    USING unnest($2::uuid[], $3::bigint[], $4::double precision[], $5::text[], $6::bytea[])
        AS g (id, fence, duration, outcome, result)
    WHERE t.id = g.id AND t.fence = g.fence AND t.state IS NOT DISTINCT FROM 'running' AND NOT t.awaited
    RETURNING
        t.id, t.root, t.run_at, t.created_at, t.claimed_at, t.boost, t.fence, g.duration, t.progress_fraction,
        t.timeout, t.priority, t.attempt, t.max_attempts, t.cancel_requested, t.type, t.queue, t.tenant, t.payload,
        t.worker, coalesce(g.outcome, ($5::text[])[1]) AS outcome, t.progress_message, g.result, t.idempotency_key, t.fingerprint, t.next, t.after,
        t.result_into, t.secret, t.trace, t.enqueued_by, t.once, t.limited
),

kept AS (
    INSERT INTO windlass.history (
        id, root, run_at, created_at, claimed_at, boost, fence, duration, progress_fraction, timeout, priority,
        attempt, max_attempts, cancel_requested, type, queue, tenant, payload, worker, outcome, progress_message,
        result, idempotency_key, fingerprint, next, after, result_into, secret, trace, enqueued_by, once,
        finished_at, state
    )
    SELECT
        done.id, done.root, done.run_at, done.created_at, done.claimed_at, done.boost, done.fence, done.duration,
        done.progress_fraction, done.timeout, done.priority, done.attempt, done.max_attempts, done.cancel_requested,
        done.type, done.queue, done.tenant, done.payload, done.worker, done.outcome, done.progress_message,
        done.result, done.idempotency_key, done.fingerprint, done.next, done.after, done.result_into, done.secret,
        done.trace, done.enqueued_by, done.once, clock.now, 'completed'
    FROM done, clock
),

told AS MATERIALIZED (
    SELECT
        count(*) = cardinality($2::uuid[]) AS complete,
        bool_or(done.limited) AS freed,
        CASE WHEN count(*) < cardinality($2::uuid[]) THEN array_agg(done.id::text) END AS those
    FROM done
),

-- A session lives for one lease more after the server was started: its heartbeats could not get through.
alive AS MATERIALIZED (
    SELECT s.worker
    FROM windlass.session AS s, clock, told
    WHERE
        s.id = $7 AND told.complete AND greatest(
            s.expires_at,
            CASE WHEN $1::timestamptz IS NULL THEN pg_postmaster_start_time() + (s.expires_at - s.beat_at) END
        ) > clock.now
),

-- Queues of these that give nothing now, or not like this: where limits apply, only a claim that counts may take.
closed AS MATERIALIZED (
    SELECT q.name, q.guarded
    FROM windlass.queue AS q
    WHERE (q.paused OR q.guarded) AND q.name = ANY ($8::text[] || ''::text)
),

/* shares */
picked AS MATERIALIZED (
    SELECT first.ctid
    FROM (
        /* arms */
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
    RETURNING {leased}, t.rank
)

SELECT
    told.complete, told.those, (SELECT alive.worker FROM alive), (SELECT bool_or(closed.guarded) FROM closed),
    claimed.*
FROM told
LEFT JOIN claimed ON true
WHERE
    -- A permit given back may let something start, wherever it waits.
    CASE
        WHEN told.freed THEN (
            SELECT count(pg_notify('windlass.wake', news.queue))
            FROM windlass.listener AS l
            CROSS JOIN LATERAL unnest(l.queues) AS news (queue)
            WHERE l.until > clock_timestamp() AND news.queue <> ''
        ) >= 0
        ELSE true
    END
