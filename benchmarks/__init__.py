"""`python -m benchmarks`: measure windlass on this machine, beside peers, in one run."""
