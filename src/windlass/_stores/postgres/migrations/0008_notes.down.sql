ALTER TABLE windlass.attempt DROP COLUMN notes;
