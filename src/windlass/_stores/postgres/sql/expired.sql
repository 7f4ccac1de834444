-- Some tasks that are to be pruned, in the history or its default partition, without those that another waits
-- for. In no order, as sorting all of them for a few would take long.
SELECT h.id::text, h.queue
FROM windlass./* :table */ AS h
WHERE
    h.state = $1 AND h.finished_at < $2 AND h.finished_at >= $3
    AND (h.queue = ANY ($4::text[])) = $5::boolean AND (h.type = ANY ($6::text[])) = $7::boolean
    AND NOT EXISTS (SELECT FROM windlass.dependency AS d WHERE d.predecessor = h.id)
LIMIT $8
FOR UPDATE SKIP LOCKED
