ALTER TABLE windlass_attempt DROP COLUMN notes;
