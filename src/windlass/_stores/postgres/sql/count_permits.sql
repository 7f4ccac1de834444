-- How many hold a permit under each of these locked keys, and the clock, as locking may have taken a while. Deletes
-- permits of tasks that run no more.
-- Not a join of the keys and the permits, which would take as many steps as the one times the other.
WITH held AS MATERIALIZED (
    SELECT p.key, p.ctid, t.id IS NOT NULL AS valid
    FROM windlass.permit AS p
    LEFT JOIN windlass.task AS t
        ON p.task_id = t.id AND p.at = t.claimed_at AND t.state IS NOT DISTINCT FROM 'running'
    WHERE p.key = ANY ($1::text[])
),

forgotten AS (
    DELETE FROM windlass.permit AS p
    WHERE p.ctid = ANY (ARRAY(SELECT held.ctid FROM held WHERE NOT held.valid))
)

SELECT every.key, sum(every.number), coalesce($2::timestamptz, clock_timestamp())
FROM (
    SELECT g.key, 0 AS number FROM unnest($1::text[]) AS g (key)
    UNION ALL
    SELECT held.key, 1 FROM held WHERE held.valid
) AS every
GROUP BY every.key
