DROP INDEX windlass_task_chained;
