-- Let a key stand for a task, in place of one that has expired.
INSERT OR REPLACE INTO windlass_idempotency (tenant, key, task_id, digest, until)
VALUES (:tenant, :key, :task_id, :digest, :until)
