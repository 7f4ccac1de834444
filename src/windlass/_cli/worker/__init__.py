"""`windlass worker`: one worker, or several supervised ones; recycling, probes and reload."""
