-- Since when only workers without a handler have claimed a task; previously part of the error message.
ALTER TABLE windlass_task ADD COLUMN unhandled_since INTEGER;
