-- Store a queue's settings, replacing the old ones.
INSERT OR REPLACE INTO windlass_queue (name, paused, settings)
VALUES (:name, :paused, :settings)
