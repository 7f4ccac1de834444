-- Queues with stripes, lanes or limits: how many stripes to fill and to read, whether they have lanes, whether
-- claims must count permits, and their settings. Then the limits, without a name.
SELECT q.name, q.stripes, q.widest, q.laned OR q.guarded, q.guarded OR q.unsettled, q.settings
FROM windlass.queue AS q
WHERE q.widest > 1 OR q.laned OR q.guarded OR q.unsettled
UNION ALL
SELECT NULL, NULL, NULL, NULL, NULL, r.body
FROM windlass.record AS r
WHERE r.kind = 'limit'
