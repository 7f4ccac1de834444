-- Mark tasks as awaited by others. Returns those that have not ended.
WITH held AS MATERIALIZED (
    SELECT t.id
    FROM windlass.task AS t
    WHERE t.id = ANY ($1::uuid[])
    ORDER BY t.id
    FOR UPDATE
)

UPDATE windlass.task AS t
SET awaited = true
WHERE t.id = ANY (ARRAY(SELECT held.id FROM held))
RETURNING t.id::text, t.state
