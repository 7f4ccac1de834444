"""Commands that run until they are stopped (worker, keeper, serve, up), and what they archive."""
