-- Tasks in the history. filters.py writes the conditions.
SELECT /* :history_columns */
FROM windlass.history AS h
WHERE /* :conditions */
