"""Which task runs next: ranks, lanes, shares, limits."""
