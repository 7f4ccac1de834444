-- Record that a waiting task waits for another.
INSERT INTO windlass_dependency (predecessor, successor)
VALUES (:predecessor, :successor)
