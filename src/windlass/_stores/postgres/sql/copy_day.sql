-- Copy the tasks of one day's partition that others need to the table that is to replace it; returns how many.
-- LATERAL and OFFSET 0 make the planner look up what is needed instead of scanning the day for it.
WITH copied AS (
    INSERT INTO windlass./* :partition */_kept
    SELECT found.*
    FROM (SELECT DISTINCT d.predecessor AS id FROM windlass.dependency AS d) AS needed
    CROSS JOIN LATERAL (
        SELECT h.*
        FROM windlass./* :partition */ AS h
        WHERE h.id = needed.id
        OFFSET 0
    ) AS found
    RETURNING 1
)

SELECT count(*) FROM copied
