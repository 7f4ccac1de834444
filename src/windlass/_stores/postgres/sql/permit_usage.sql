-- What is in use under these permits' keys, without locks: enough to see which have nothing left.
SELECT
    g.key,
    (
        SELECT count(*)
        FROM windlass.permit AS p
        INNER JOIN windlass.task AS t
            ON p.task_id = t.id AND p.at = t.claimed_at AND t.state IS NOT DISTINCT FROM 'running'
        WHERE p.key = g.key
    ),
    b.tokens,
    b.at,
    coalesce($2::timestamptz, clock_timestamp())
FROM unnest($1::text[]) AS g (key)
LEFT JOIN windlass.bucket AS b ON g.key = b.key
