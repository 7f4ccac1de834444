-- Forget some keys that nobody holds anything of and that were not asked for in a while, in which any bucket has
-- filled: that is as good as none. With them go the permits that count no more.
-- OFFSET 0 has permits looked up key by key, not all of them gone through.
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
