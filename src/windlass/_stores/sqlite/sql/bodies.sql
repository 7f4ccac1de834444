-- Records of every kind and the settings of queues, for the check that all can be read. Bounded.
SELECT kind, name, body
FROM windlass_record
UNION ALL
SELECT 'queue', name, settings
FROM windlass_queue
LIMIT :limit
