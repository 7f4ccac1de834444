"""Find and count on Postgres."""
