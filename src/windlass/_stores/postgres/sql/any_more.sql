-- Whether an index holds more than so many tasks of a state; the state takes the place of "true".
SELECT count(*) > $1::bigint
FROM (
    SELECT FROM windlass.task AS t
    WHERE true
    LIMIT $1::bigint + 1
) AS few
