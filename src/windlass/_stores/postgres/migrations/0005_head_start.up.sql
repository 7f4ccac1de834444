-- phase: before
-- The head start of one priority in a queue, in milliseconds; NULL if the queue never had ageing. The store ranks tasks
-- by it, so that a change applies to every producer at once. Older code ignores it.
ALTER TABLE windlass.queue ADD COLUMN head_start bigint;
UPDATE windlass.queue
SET head_start = (extract(EPOCH FROM (settings::jsonb -> 'ordering' ->> 'ageing')::interval) * 1000)::bigint
WHERE settings IS NOT NULL AND settings::jsonb -> 'ordering' ->> 'ageing' IS NOT NULL;
