-- Whether another task needs one of a partition that was not copied, or one of those was cancelled and needs others.
-- LATERAL with OFFSET 0, and LIMIT, make the planner look up what is needed and was copied, not scan all.
SELECT EXISTS (
    SELECT FROM (
        SELECT d.predecessor AS id, true AS needed FROM windlass.dependency AS d
        UNION
        SELECT d.successor, false FROM windlass.dependency AS d
    ) AS either
    CROSS JOIN LATERAL (
        SELECT h.id
        FROM windlass./* :partition */ AS h
        WHERE h.id = either.id AND (either.needed OR h.state = 'cancelled')
        OFFSET 0
    ) AS found
    WHERE (SELECT k.id FROM windlass./* :partition */_kept AS k WHERE k.id = found.id LIMIT 1) IS NULL
)
