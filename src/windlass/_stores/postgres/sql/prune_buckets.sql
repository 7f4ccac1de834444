-- Delete some buckets of keys without permits that were not used for a while, in which any bucket has filled up;
-- a full bucket equals none. Also deletes their outdated permits.
-- OFFSET 0 makes the planner look up permits key by key instead of reading all of them.
WITH old AS MATERIALIZED (
    SELECT b.key
    FROM windlass.bucket AS b
    WHERE
        b.at < coalesce($1::timestamptz, clock_timestamp()) - $2::interval
        AND NOT EXISTS (
            SELECT FROM windlass.permit AS p
            INNER JOIN windlass.task AS t
                ON p.task_id = t.id AND p.at = t.claimed_at AND t.state IS NOT DISTINCT FROM 'running'
            WHERE p.key = b.key
            OFFSET 0
        )
    ORDER BY b.key
    LIMIT $3
    FOR UPDATE OF b SKIP LOCKED
),

forgotten AS (
    DELETE FROM windlass.permit AS p
    WHERE p.key = ANY (ARRAY(SELECT old.key FROM old))
)

DELETE FROM windlass.bucket AS b
WHERE b.key = ANY (ARRAY(SELECT old.key FROM old))
RETURNING b.key
