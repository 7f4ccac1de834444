-- Whether any task waits for another at all: mostly none does, and then completing need not ask further.
SELECT 1
FROM windlass_dependency
LIMIT 1
