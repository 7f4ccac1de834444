-- The worker of a session that is alive. After a restart of the server a session lives for one more lease.
SELECT s.worker
FROM windlass.session AS s
WHERE
    s.id = $2 AND greatest(
        s.expires_at,
        CASE WHEN $1::timestamptz IS NULL THEN pg_postmaster_start_time() + (s.expires_at - s.beat_at) END
    ) > coalesce($1::timestamptz, clock_timestamp())
