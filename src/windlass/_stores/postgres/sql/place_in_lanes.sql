-- Move these locked tasks into lanes; stripe -1 means in a lane, see queue_layout.py.
UPDATE windlass.task AS t
SET stripe = -1, lane = g.lane, key = g.key
FROM unnest($1::uuid[], $2::text[], $3::text[]) AS g (id, lane, key)
WHERE t.id = g.id
