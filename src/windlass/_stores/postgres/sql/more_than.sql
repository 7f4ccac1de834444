-- Whether the index of a state leads to more than this many tasks.
SELECT count(*) > $1::bigint
FROM (
    SELECT FROM windlass.task AS t
    WHERE /* :conditions */
    LIMIT $1::bigint + 1
) AS few
