-- phase: before
-- The present or next opening of a queue with windows; NULL if it has none. Claims take nothing outside of it. Older code
-- ignores it, and claims at any time.
ALTER TABLE windlass.queue ADD COLUMN opens_at timestamptz;
ALTER TABLE windlass.queue ADD COLUMN closes_at timestamptz;
