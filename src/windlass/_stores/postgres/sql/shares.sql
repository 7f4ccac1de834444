-- How many of the first that are ready, over all arms, each arm has: so many are locked there, and no more,
-- lest others find nothing where there is something.
shares AS MATERIALIZED (
    SELECT head.arm, count(*) AS number
    FROM (
        SELECT heads.arm
        FROM (
            /* heads */
        ) AS heads
        ORDER BY heads.rank, heads.id
        LIMIT $10
    ) AS head
    GROUP BY head.arm
),
