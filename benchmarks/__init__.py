"""`python -m benchmarks`: windlass measured on this machine, beside a peer, in one run."""
