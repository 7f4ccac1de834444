-- The first ready tasks of one stripe, read without locking them.
(
    SELECT /* :number */ AS stripe, t.rank, t.id
    FROM windlass.task AS t
    WHERE
        t.state = 'ready' AND t.queue = ($8::text[])[/* :number */] AND t.stripe = ($9::smallint[])[/* :number */]
        AND (t.rank, t.id) >= (($12::bigint[])[/* :number */], ($13::uuid[])[/* :number */])
        AND (t.expires_at IS NULL OR t.expires_at > (SELECT clock.now FROM clock) OR t.attempt > 0) /* :of_types */
        AND NOT EXISTS (SELECT FROM closed WHERE closed.name IN (($8::text[])[/* :number */], ''))
    ORDER BY t.rank, t.id
    LIMIT $10
)
