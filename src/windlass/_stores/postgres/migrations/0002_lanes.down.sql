-- Drop lanes and limits; no task is deleted.
DROP TABLE windlass.record;
DROP TABLE windlass.bucket;
DROP TABLE windlass.permit;
DROP INDEX windlass.task_low;
DROP INDEX windlass.task_high;
DROP INDEX windlass.task_lane;
ALTER TABLE windlass.queue DROP COLUMN unsettled;
ALTER TABLE windlass.queue DROP COLUMN guarded;
ALTER TABLE windlass.queue DROP COLUMN laned_at;
ALTER TABLE windlass.queue DROP COLUMN laned;
DELETE FROM windlass.queue WHERE name = '';
ALTER TABLE windlass.task DROP COLUMN limited;
ALTER TABLE windlass.task DROP COLUMN key;
ALTER TABLE windlass.task DROP COLUMN lane;
UPDATE windlass.task SET stripe = 0 WHERE stripe < 0;
