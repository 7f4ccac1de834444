ALTER TABLE windlass.queue DROP COLUMN head_start;
