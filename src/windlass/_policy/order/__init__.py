"""Which task runs next: priority, lanes, fairness, limits."""
