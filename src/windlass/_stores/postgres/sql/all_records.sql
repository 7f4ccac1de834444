-- All records of a kind, by name.
SELECT body FROM windlass.record WHERE kind = $1 ORDER BY name
