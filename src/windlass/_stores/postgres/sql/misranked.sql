-- Whether ready tasks of the high level have a rank from $2 to below $3, or those of the low level from $4 to below $5.
SELECT
    EXISTS (
        SELECT FROM windlass.task AS t
        WHERE t.state = 'ready' AND t.queue = $1 AND t.priority > 0 AND t.rank >= $2 AND t.rank < $3
    )
    OR EXISTS (
        SELECT FROM windlass.task AS t
        WHERE t.state = 'ready' AND t.queue = $1 AND t.priority < 0 AND t.rank >= $4 AND t.rank < $5
    )
