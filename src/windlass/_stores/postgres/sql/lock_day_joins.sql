-- Delete cancelled tasks of one day's partition that keep results of others to be replayed, with what they keep, their
-- attempts and keys; not those that others need. Returns their queues.
-- LATERAL with OFFSET 0, and LIMIT, make the planner look up what keeps something and is kept, not scan all.
WITH kept AS MATERIALIZED (
    SELECT cancelled.id
    FROM (SELECT DISTINCT d.successor AS id FROM windlass.dependency AS d) AS needy
    CROSS JOIN LATERAL (
        SELECT h.id
        FROM windlass./* :partition */ AS h
        WHERE h.id = needy.id AND h.state = 'cancelled'
        OFFSET 0
    ) AS cancelled
    WHERE (SELECT d.predecessor FROM windlass.dependency AS d WHERE d.predecessor = cancelled.id LIMIT 1) IS NULL
),

gone AS (
    DELETE FROM windlass./* :partition */ AS h
    WHERE h.id = ANY (ARRAY(SELECT kept.id FROM kept)) AND h.state = 'cancelled'
    RETURNING h.id, h.queue
),

needs AS (
    DELETE FROM windlass.dependency AS d
    WHERE d.successor = ANY (ARRAY(SELECT gone.id FROM gone))
),

lines AS (
    DELETE FROM windlass.attempt AS a
    WHERE a.task_id = ANY (ARRAY(SELECT gone.id FROM gone))
),

keys AS (
    DELETE FROM windlass.idempotency AS i
    WHERE i.task_id = ANY (ARRAY(SELECT gone.id FROM gone)) AND i.until IS NULL
)

SELECT gone.queue, 'cancelled' AS state, count(*) AS number
FROM gone
GROUP BY gone.queue
