"""`python -m benchmarks`: measure windlass and its peers on this machine, in one run."""
