-- One stripe of a queue as a claim sees it: ready tasks in order, from a rank and id on, none while the queue is
-- paused. Rows are locked as they are taken, and no more than the limit; those that others have locked are skipped.
SELECT stripe.rank, stripe.id, stripe.ctid
FROM (
    SELECT t.rank, t.id, t.ctid
    FROM windlass.task AS t
    WHERE
        t.state = 'ready' AND t.queue = ($8::text[])[/* :number */] AND t.stripe = ($9::smallint[])[/* :number */]
        AND (t.rank, t.id) >= (($12::bigint[])[/* :number */], ($13::uuid[])[/* :number */])
        AND (t.expires_at IS NULL OR t.expires_at > (SELECT clock.now FROM clock) OR t.attempt > 0) /* :of_types */
        AND (SELECT true FROM alive)
        AND NOT EXISTS (SELECT FROM closed WHERE closed.name IN (($8::text[])[/* :number */], ''))
    ORDER BY t.rank, t.id
    LIMIT /* :limit */
    FOR UPDATE OF t SKIP LOCKED
) AS stripe
