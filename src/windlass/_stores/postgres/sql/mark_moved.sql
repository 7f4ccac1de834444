-- Mark the tasks of these queues ('' is all queues) as moved to where they belong.
UPDATE windlass.queue AS q
SET unsettled = false
WHERE q.name = ANY ($1::text[]) AND q.unsettled
