-- Keep a queue's settings in place of the ones before.
INSERT OR REPLACE INTO windlass_queue (name, paused, settings)
VALUES (:name, :paused, :settings)
