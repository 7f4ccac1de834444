-- Replace the documents of tasks whose payload and steps are still the expected ones; returns their ids.
WITH given AS (
    SELECT g.*
    FROM unnest(
        $1::uuid[], $2::bytea[], $3::bytea[], $4::bytea[], $5::bytea[], $6::bytea[], $7::bytea[]
    ) AS g (id, payload, next, result, payload_before, next_before, result_before)
),

locked AS (
    SELECT t.id
    FROM windlass.task AS t
    WHERE t.id = ANY ($1::uuid[])
    ORDER BY t.id
    FOR UPDATE
),

kept AS (
    UPDATE windlass.task AS t
    SET payload = g.payload, next = g.next
    FROM given AS g, locked AS l
    WHERE
        t.id = l.id AND g.id = l.id AND g.result_before IS NULL
        AND t.payload = g.payload_before AND t.next IS NOT DISTINCT FROM g.next_before
    RETURNING t.id
),

ended AS (
    UPDATE windlass.history AS h
    SET payload = g.payload, next = g.next, result = g.result
    FROM given AS g
    WHERE
        h.id = g.id AND h.payload = g.payload_before AND h.next IS NOT DISTINCT FROM g.next_before
        AND h.result IS NOT DISTINCT FROM g.result_before
    RETURNING h.id
)

SELECT k.id::text FROM kept AS k
UNION ALL
SELECT e.id::text FROM ended AS e
