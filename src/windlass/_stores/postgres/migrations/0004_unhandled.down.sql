ALTER TABLE windlass.task DROP COLUMN unhandled_since;
