-- Of these tasks, in their order, those that nobody has locked. Rows are locked one by one, and no more than the
-- limit of the claim.
SELECT candidate.rank, candidate.id, locked.ctid
FROM (SELECT * FROM candidate ORDER BY candidate.rank, candidate.id) AS candidate
CROSS JOIN LATERAL (
    SELECT t.ctid
    FROM windlass.task AS t
    WHERE t.ctid = candidate.ctid AND t.state IS NOT DISTINCT FROM 'ready'
    FOR UPDATE OF t SKIP LOCKED
) AS locked
