-- Add an entry to the audit log.
INSERT INTO windlass_audit (id, at, who, why, action, task_id, detail, subject)
VALUES (:id, :at, :who, :why, :action, :task_id, :detail, :subject)
