"""A busy shop on real worker processes, one of them killed, and proof that no task was lost: `make demo`."""
