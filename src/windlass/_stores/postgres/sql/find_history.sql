-- Tasks in the history. The conditions of an arm take the place of "true"; see filters.py.
SELECT {history}
FROM windlass.history AS h
WHERE true
