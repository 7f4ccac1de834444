-- Ready tasks of lanes, a number for each lane; as stripe_candidates.sql, for queues that no limit applies to.
-- $9, $12 and $13 are about stripes, and empty here.
SELECT first.rank, first.id, first.ctid
FROM unnest($14::text[], $15::text[], $16::integer[]) AS g (queue, lane, number)
CROSS JOIN LATERAL (
    SELECT t.rank, t.id, t.ctid
    FROM windlass.task AS t
    WHERE
        t.state = 'ready' AND t.lane IS NOT NULL AND t.queue = g.queue AND t.lane = g.lane AND t.key = ''
        AND (t.expires_at IS NULL OR t.expires_at > (SELECT clock.now FROM clock) OR t.attempt > 0)
        AND (SELECT true FROM alive)
    ORDER BY t.queue, t.lane, t.key, t.rank, t.id
    LIMIT g.number
    FOR UPDATE OF t SKIP LOCKED
) AS first
WHERE
    NOT EXISTS (SELECT FROM closed WHERE closed.name IN (g.queue, ''))
    AND cardinality($9::smallint[]) + cardinality($12::bigint[]) + cardinality($13::uuid[]) = 0
