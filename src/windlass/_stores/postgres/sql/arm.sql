-- One queue, or one stripe of it, as a claim sees it: only what is ready, in order, and nothing while it is
-- paused. Rows are locked as they are taken, no more; those that others have locked are skipped.
SELECT arm.rank, arm.id, arm.ctid
FROM (
    SELECT t.rank, t.id, t.ctid
    FROM windlass.task AS t
    WHERE
        t.state = 'ready' AND t.queue = ($8::text[])[0] AND t.stripe = ($9::smallint[])[0]
        AND (t.rank, t.id) >= (($12::bigint[])[0], ($13::uuid[])[0])
        AND (SELECT true FROM alive)
        AND NOT EXISTS (SELECT FROM closed WHERE closed.name IN (($8::text[])[0], ''))
    ORDER BY t.rank, t.id
    LIMIT /* room */
    FOR UPDATE OF t SKIP LOCKED
) AS arm
