-- No line is lost: what it is about goes to the front of its detail.
UPDATE windlass_audit SET detail = trim(subject || ' ' || detail) WHERE subject <> '';
ALTER TABLE windlass_audit DROP COLUMN subject;
