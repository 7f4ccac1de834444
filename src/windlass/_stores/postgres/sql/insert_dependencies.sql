-- Record which tasks wait for which.
INSERT INTO windlass.dependency (predecessor, successor)
SELECT g.predecessor, g.successor
FROM unnest($1::uuid[], $2::uuid[]) AS g (predecessor, successor)
