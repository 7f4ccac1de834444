-- Lock cancelled tasks of one day's partition that keep results of others to be replayed; not those that others need.
-- LATERAL with OFFSET 0, and LIMIT, make the planner look up what keeps something and is kept, not scan all.
SELECT cancelled.id::text
FROM (SELECT DISTINCT d.successor AS id FROM windlass.dependency AS d) AS needy
CROSS JOIN LATERAL (
    SELECT h.id
    FROM windlass./* :partition */ AS h
    WHERE h.id = needy.id AND h.state = 'cancelled'
    OFFSET 0
    FOR UPDATE SKIP LOCKED
) AS cancelled
WHERE (SELECT d.predecessor FROM windlass.dependency AS d WHERE d.predecessor = cancelled.id LIMIT 1) IS NULL
