ALTER TABLE windlass.queue DROP COLUMN closes_at;
ALTER TABLE windlass.queue DROP COLUMN opens_at;
