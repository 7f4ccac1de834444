-- Write the progress of running tasks whose leases hold.
UPDATE windlass.task AS t
SET progress_fraction = g.fraction, progress_message = g.message
FROM unnest($1::uuid[], $2::bigint[], $3::double precision[], $4::text[]) AS g (id, fence, fraction, message)
WHERE t.id = g.id AND t.fence = g.fence AND t.state IS NOT DISTINCT FROM 'running'
