-- Some tasks in the history that are to be pruned, without those that another waits for. In no order, as sorting
-- all of them for a few would take long.
SELECT h.id::text, h.queue
FROM windlass.history AS h
WHERE
    h.state = $1 AND h.finished_at < $2 AND h.finished_at >= $6 AND (h.queue = ANY ($3::text[])) <> $4::boolean
    AND NOT EXISTS (SELECT FROM windlass.dependency AS d WHERE d.predecessor = h.id)
LIMIT $5
FOR UPDATE SKIP LOCKED
