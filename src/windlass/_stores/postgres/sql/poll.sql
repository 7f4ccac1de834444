-- Those of these queues that have ready tasks, and when the next task is due.
SELECT
    (
        SELECT array_agg(g.queue)
        FROM unnest($1::text[]) AS g (queue)
        WHERE (
            SELECT true
            FROM windlass.task AS t
            WHERE t.state = 'ready' AND t.queue = g.queue
            ORDER BY t.queue, t.stripe, t.rank
            LIMIT 1
        )
    ),
    (
        SELECT t.run_at
        FROM windlass.task AS t
        WHERE t.state = 'scheduled'
        ORDER BY t.run_at, t.id
        LIMIT 1
    )
