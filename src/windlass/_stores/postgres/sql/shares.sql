-- How many of the first ready tasks over all stripes each stripe has. No more are locked there, so that other
-- claims find the rest.
shares AS MATERIALIZED (
    SELECT head.stripe, count(*) AS number
    FROM (
        SELECT heads.stripe
        FROM (
            /* :heads */
        ) AS heads
        ORDER BY heads.rank, heads.id
        LIMIT $10
    ) AS head
    GROUP BY head.stripe
),
