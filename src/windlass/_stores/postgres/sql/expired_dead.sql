-- Dead tasks that are to be pruned, longest dead first.
SELECT t.id::text, t.queue
FROM windlass.task AS t
WHERE t.state = 'dead' AND t.state = $1 AND t.finished_at < $2 AND (t.queue = ANY ($3::text[])) <> $4::boolean
ORDER BY t.finished_at
LIMIT $5
FOR UPDATE SKIP LOCKED
