-- Give up the lead.
WITH resigned AS (
    DELETE FROM windlass.lead AS l
    WHERE l.holder = $1
)

SELECT 1 WHERE false
