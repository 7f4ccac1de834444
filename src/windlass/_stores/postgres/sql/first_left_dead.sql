-- When the first of the dead tasks ended that are to be pruned and are still there, as others have locked them.
SELECT t.finished_at
FROM windlass.task AS t
WHERE
    t.state = 'dead' AND t.state = $1 AND t.finished_at < $2 AND t.finished_at >= $3
    AND (t.queue = ANY ($4::text[])) = $5::boolean AND (t.type = ANY ($6::text[])) = $7::boolean
ORDER BY t.finished_at
LIMIT 1
