"""Wall clocks and cron: the instants of an expression in a time zone."""
