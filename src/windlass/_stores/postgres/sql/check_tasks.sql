-- Expired sessions, running tasks without a session, waiting tasks without a predecessor, and ended tasks in the
-- default partition of the history. Each is counted up to a bound.
SELECT
    (SELECT count(*) FROM windlass.session AS s WHERE s.expires_at <= coalesce($1::timestamptz, clock_timestamp())),
    (
        SELECT count(*)
        FROM (SELECT FROM windlass.task AS t WHERE t.state = 'running' AND t.session IS NULL LIMIT $2::bigint) AS few
    ),
    (
        SELECT count(*)
        FROM (SELECT t.id FROM windlass.task AS t WHERE t.state = 'waiting' LIMIT $2::bigint) AS few
        WHERE NOT EXISTS (SELECT FROM windlass.dependency AS d WHERE d.successor = few.id)
    ),
    (SELECT count(*) FROM (SELECT FROM windlass.history_rest LIMIT $2::bigint) AS few)
