-- Mark the tasks of these queues ('' is all queues) as to be moved to other lanes.
INSERT INTO windlass.queue AS q (name, paused, stripes, widest, unsettled)
SELECT g.name, false, 1, 1, true
FROM unnest($1::text[]) AS g (name)
ORDER BY g.name
ON CONFLICT (name) DO UPDATE SET unsettled = true
