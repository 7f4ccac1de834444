ALTER TABLE windlass_task DROP COLUMN unhandled_since;
