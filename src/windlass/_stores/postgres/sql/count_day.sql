-- How many tasks of one day's partition others need, and how many it has.
-- LATERAL and OFFSET 0 make the planner look up what is needed instead of scanning the day for it.
SELECT
    (
        SELECT count(*)
        FROM (SELECT DISTINCT d.predecessor AS id FROM windlass.dependency AS d) AS needed
        CROSS JOIN LATERAL (
            SELECT FROM windlass./* :partition */ AS h
            WHERE h.id = needed.id
            OFFSET 0
        ) AS found
    ),
    (SELECT count(*) FROM windlass./* :partition */)
