-- The tasks of chains and groups, which people page through. Others do not pay for it.
CREATE INDEX windlass_task_chained ON windlass_task (id) WHERE (next IS NOT NULL OR root <> id);
