-- Move some ready tasks of a queue out of their lanes; returns how many.
WITH those AS MATERIALIZED (
    SELECT t.id
    FROM windlass.task AS t
    WHERE t.state = 'ready' AND t.lane IS NOT NULL AND t.queue = $1
    ORDER BY t.queue, t.lane, t.key, t.rank, t.id
    LIMIT $2
    FOR UPDATE OF t SKIP LOCKED
),

taken AS (
    UPDATE windlass.task AS t
    SET stripe = 0, lane = NULL, key = NULL
    WHERE t.id = ANY (ARRAY(SELECT those.id FROM those))
    RETURNING t.id
)

SELECT count(*) FROM taken
