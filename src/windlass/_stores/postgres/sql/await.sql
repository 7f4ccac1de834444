-- Somebody waits for these from now on. Those that have ended are not among the answers.
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
