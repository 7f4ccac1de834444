-- Move tasks that completed or were cancelled to the history; returns how many.
WITH ended AS (
    DELETE FROM windlass.task AS t
    USING unnest(
        $1::uuid[], $2::text[], $3::bigint[], $4::integer[], $5::timestamptz[], $6::timestamptz[],
        $7::double precision[], $8::text[], $9::bytea[], $10::boolean[], $11::text[], $12::text[], $13::text[],
        $14::text[], $15::text[], $16::text[], $17::text[]
    ) AS g (
        id, state, fence, attempt, run_at, finished_at, duration, outcome, result, cancel_requested, error_type,
        error_message, error_traceback, worker, cancelled_by, cancel_reason, fingerprint
    )
    WHERE t.id = g.id
    RETURNING
        /* :ended_columns */, t.progress_fraction, t.progress_message, g.state, g.fence, g.attempt, g.run_at,
        g.finished_at, g.duration, g.outcome, g.result, g.cancel_requested, g.error_type, g.error_message,
        g.error_traceback, g.worker, g.cancelled_by, g.cancel_reason
),

kept AS (
    INSERT INTO windlass.history (
        /* :fixed_columns */, progress_fraction, progress_message, state, fence, attempt, run_at, finished_at, duration,
        outcome, result, cancel_requested, error_type, error_message, error_traceback, worker,
        cancelled_by, cancel_reason
    )
    SELECT ended.* FROM ended
)

SELECT count(*) FROM ended
