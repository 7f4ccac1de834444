-- Some tasks that are to be pruned, in the history or its default partition, without those that another waits
-- for: of those that ended since an instant, or of some. In no order, as sorting all of them for a few would take long.
SELECT h.id::text, h.queue
FROM windlass./* :table */ AS h
WHERE
    h.state = $1 AND h.finished_at < $2 AND /* :looked_at */
    AND (h.queue = ANY ($4::text[])) = $5::boolean AND (h.type = ANY ($6::text[])) = $7::boolean
    AND NOT EXISTS (SELECT FROM windlass.dependency AS d WHERE d.predecessor = h.id)
LIMIT $8
FOR UPDATE SKIP LOCKED
