-- Dead tasks that are to be pruned, longest dead first.
SELECT t.id::text, t.queue
FROM windlass.task AS t
WHERE
    t.state = 'dead' AND t.state = $1 AND t.finished_at < $2 AND t.finished_at >= $3
    AND (t.queue = ANY ($4::text[])) = $5::boolean AND (t.type = ANY ($6::text[])) = $7::boolean
ORDER BY t.finished_at
LIMIT $8
FOR UPDATE SKIP LOCKED
