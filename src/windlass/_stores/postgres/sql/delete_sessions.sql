-- Delete expired sessions that hold no tasks.
DELETE FROM windlass.session AS s
WHERE
    greatest(
        s.expires_at,
        CASE WHEN $1::timestamptz IS NULL THEN pg_postmaster_start_time() + (s.expires_at - s.beat_at) END
    ) <= coalesce($1::timestamptz, clock_timestamp())
    AND (
        SELECT true
        FROM windlass.task AS t
        WHERE t.session = s.id AND t.state = 'running'
        ORDER BY t.session
        LIMIT 1
    ) IS NULL
