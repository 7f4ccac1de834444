"""Which task runs next: priority, lanes, fairness, limits; and how often idle workers look for one."""
