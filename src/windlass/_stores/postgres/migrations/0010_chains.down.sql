DROP INDEX windlass.history_chained;
DROP INDEX windlass.task_chained;
