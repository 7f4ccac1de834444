-- When only workers without a handler began to claim a task: a fact of its own instead of a part of its error.
ALTER TABLE windlass_task ADD COLUMN unhandled_since INTEGER;
