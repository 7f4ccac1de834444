-- Write the changes of tasks that have not ended, or are dead; returns how many.
WITH kept AS (
    UPDATE windlass.task AS t
    SET
        payload = g.payload,
        fingerprint = g.fingerprint,
        state = g.state,
        attempt = g.attempt,
        fence = g.fence,
        run_at = g.run_at,
        boost = g.boost,
        rank = g.rank,
        finished_at = g.finished_at,
        session = g.session,
        duration = g.duration,
        cancel_requested = g.cancel_requested,
        progress_fraction = g.progress_fraction,
        progress_message = g.progress_message,
        error_type = g.error_type,
        error_message = g.error_message,
        error_traceback = g.error_traceback,
        unhandled_since = g.unhandled_since,
        expires_at = g.expires_at,
        cancelled_by = g.cancelled_by,
        cancel_reason = g.cancel_reason,
        failure = g.failure,
        worker = g.worker,
        -- What comes back is put into its lane by the next claim, by what holds then.
        stripe = CASE WHEN t.lane IS NULL OR g.state = 'running' THEN t.stripe ELSE 0 END,
        lane = CASE WHEN g.state = 'running' THEN t.lane END,
        key = CASE WHEN g.state = 'running' THEN t.key END,
        limited = t.limited AND g.state = 'running'
    FROM unnest(
        $1::uuid[], $2::bytea[], $3::text[], $4::integer[], $5::bigint[], $6::timestamptz[], $7::timestamptz[],
        $8::text[], $9::double precision[], $10::boolean[], $11::double precision[], $12::text[], $13::text[],
        $14::text[], $15::text[], $16::text[], $17::bigint[], $18::bigint[],
        $19::timestamptz[], $20::timestamptz[], $21::text[], $22::text[], $23::text[], $24::text[]
    ) AS g (
        id, payload, state, attempt, fence, run_at, finished_at, session, duration, cancel_requested,
        progress_fraction, progress_message, error_type, error_message, error_traceback, worker, boost,
        rank, unhandled_since, expires_at, cancelled_by, cancel_reason, fingerprint, failure
    )
    WHERE t.id = g.id
    RETURNING t.id
)

SELECT count(*) FROM kept
