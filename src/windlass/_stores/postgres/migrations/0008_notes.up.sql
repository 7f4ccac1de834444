-- phase: before
-- Facts that handlers keep with their attempts, as JSON. Adding the column rewrites no row; older code ignores it.
ALTER TABLE windlass.attempt ADD COLUMN notes bytea;
