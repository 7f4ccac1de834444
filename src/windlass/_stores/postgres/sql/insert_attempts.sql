-- Record attempts.
INSERT INTO windlass.attempt (
    task_id, fence, number, worker, claimed_at, finished_at, duration, outcome, error_type, error_message,
    error_traceback, trace, notes
)
SELECT g.*
FROM unnest(
    $1::uuid[], $2::bigint[], $3::integer[], $4::text[], $5::timestamptz[], $6::timestamptz[],
    $7::double precision[], $8::text[], $9::text[], $10::text[], $11::text[], $12::text[], $13::bytea[]
) AS g
ON CONFLICT (task_id, fence) DO NOTHING
