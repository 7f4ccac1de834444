-- Queues that have, or had, more than one stripe: how many to fill, and how many to look into.
SELECT q.name, q.stripes, q.widest
FROM windlass.queue AS q
WHERE q.widest > 1
