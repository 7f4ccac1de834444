"""Parts on Redis: beside peers, memory, fair and limited queues, millions of tasks."""
