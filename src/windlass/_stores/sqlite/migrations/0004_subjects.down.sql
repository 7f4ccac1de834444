-- Keep every entry: its subject is prefixed to its detail.
UPDATE windlass_audit SET detail = trim(subject || ' ' || detail) WHERE subject <> '';
ALTER TABLE windlass_audit DROP COLUMN subject;
