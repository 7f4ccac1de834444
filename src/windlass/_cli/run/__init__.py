"""Commands that run until they are stopped (keeper, serve, up, top), and what they archive."""
