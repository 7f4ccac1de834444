-- Queues with stripes, lanes, limits or ageing: how many stripes to fill and to read, whether they have lanes, whether
-- claims must count permits, their settings, and the head start of one priority. Then the limits, without a name.
SELECT q.name, q.stripes, q.widest, q.laned OR q.guarded, q.guarded OR q.unsettled, q.settings, q.head_start
FROM windlass.queue AS q
WHERE q.widest > 1 OR q.laned OR q.guarded OR q.unsettled OR q.head_start IS NOT NULL
UNION ALL
SELECT NULL, NULL, NULL, NULL, NULL, r.body, NULL
FROM windlass.record AS r
WHERE r.kind = 'limit'
