-- Tasks that have not ended, and dead ones. The conditions of an arm take the place of "true"; see filters.py.
SELECT {task}
FROM windlass.task AS t
WHERE true
