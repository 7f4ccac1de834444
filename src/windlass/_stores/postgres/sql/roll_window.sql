-- Store the opening of a queue that is present or next now, unless its settings have changed.
UPDATE windlass.queue AS q
SET opens_at = $3, closes_at = $4
WHERE q.name = $1 AND q.settings = $2
