"""Find and count on SQLite."""
