-- phase: before
-- When only workers without a handler began to claim a task: a fact of its own instead of a part of its error.
-- Adding the column rewrites no row; older code ignores it.
ALTER TABLE windlass.task ADD COLUMN unhandled_since timestamptz;
