-- What is in use under every permit's key: running tasks, and the tokens a rate limit had left, and when.
SELECT
    b.key,
    (
        SELECT count(*)
        FROM windlass.permit AS p
        INNER JOIN windlass.task AS t
            ON p.task_id = t.id AND p.at = t.claimed_at AND t.state IS NOT DISTINCT FROM 'running'
        WHERE p.key = b.key
    ),
    b.tokens,
    b.at
FROM windlass.bucket AS b
ORDER BY b.key
