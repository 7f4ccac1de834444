-- Forgets what was done once: effects elsewhere may happen again. Let the tasks that mark any end first.
DROP TABLE windlass_once;
