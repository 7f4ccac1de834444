-- The tasks of these queues ('' for all) are where they belong.
UPDATE windlass.queue AS q
SET unsettled = false
WHERE q.name = ANY ($1::text[]) AND q.unsettled
