"""Upkeep of a Postgres store: lead, promote, prune, partitions, checks."""
