-- The head of one queue, looked at without locking anything.
(
    SELECT 0 AS arm, t.rank, t.id
    FROM windlass.task AS t
    WHERE
        t.state = 'ready' AND t.queue = ($8::text[])[0] AND t.stripe = ($9::smallint[])[0]
        AND (t.rank, t.id) >= (($12::bigint[])[0], ($13::uuid[])[0])
        AND NOT EXISTS (SELECT FROM closed WHERE closed.name IN (($8::text[])[0], ''))
    ORDER BY t.rank, t.id
    LIMIT $10
)
