-- Store the task of an idempotency key, replacing an expired one.
INSERT OR REPLACE INTO windlass_idempotency (tenant, key, task_id, digest, until)
VALUES (:tenant, :key, :task_id, :digest, :until)
