-- Rank some ready tasks of a queue by another head start of one priority ($2), in order from a rank and id on; tasks
-- that others have locked are skipped. Returns how many were looked at, and the last of them.
WITH those AS MATERIALIZED (
    SELECT t.id, t.rank
    FROM windlass.task AS t
    WHERE t.state = 'ready' AND t.queue = $1 AND /* :level */ AND (t.rank, t.id) > ($3, $4)
    ORDER BY t.rank, t.id
    LIMIT $5
    FOR UPDATE OF t SKIP LOCKED
),

ranked AS (
    UPDATE windlass.task AS t
    SET boost = t.priority * $2::bigint, rank = t.rank + t.boost - t.priority * $2::bigint
    WHERE t.id = ANY (ARRAY(SELECT those.id FROM those)) AND t.boost <> t.priority * $2::bigint
)

SELECT count(*), max(those.rank), (array_agg(those.id::text ORDER BY those.rank DESC, those.id DESC))[1]
FROM those
