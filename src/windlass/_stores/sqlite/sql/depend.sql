-- Let a waiting task wait for another.
INSERT INTO windlass_dependency (predecessor, successor)
VALUES (:predecessor, :successor)
