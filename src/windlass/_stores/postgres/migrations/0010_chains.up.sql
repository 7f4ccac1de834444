-- phase: before
-- The tasks of chains and groups, which people page through. Others do not pay for it.
CREATE INDEX task_chained ON windlass.task (id) WHERE next IS NOT NULL OR root <> id;
CREATE INDEX history_chained ON windlass.history (id) WHERE next IS NOT NULL OR root <> id;
