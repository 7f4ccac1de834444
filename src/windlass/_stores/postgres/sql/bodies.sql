-- Records of every kind and the settings of queues, for the check that all can be read. Bounded;
-- without history, which is statistics and would take up all the room.
SELECT kind, name, body
FROM windlass.record
WHERE kind <> 'history'
UNION ALL
SELECT 'queue', name, settings
FROM windlass.queue
WHERE settings IS NOT NULL
LIMIT $1
