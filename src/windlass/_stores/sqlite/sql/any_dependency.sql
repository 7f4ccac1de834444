-- Whether any task waits for another, or needs its result. Usually none does, and completing a task then needs no further queries.
SELECT 1
FROM windlass_dependency
LIMIT 1
